# A sweep over seeds by a shell.
set -e
for seed in 1 2; do python train_seed.py $seed; done
