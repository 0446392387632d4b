"""What all benches share: children, figures and goals, scripts that are written from parts."""
