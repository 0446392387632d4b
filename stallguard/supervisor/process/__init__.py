"""The process of a training: started, watched, signalled, taken over by a later supervisor."""
