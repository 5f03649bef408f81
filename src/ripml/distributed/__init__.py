"""Models fitted by the workers of a Dask cluster: the same as by `RIPML.fit`.

The default, `RIPML.linear` and all decoders but "votes" take the same walk as a fit from files (`ripml.model.fitting`),
with rows that the workers have as well (`ripml.distributed.rows`):

    load      one task per partition: check the rows, and give them the same columns on all workers
    rows      consecutive partitions become shards, at least one per thread; the client writes their rows to files
    sum       relevance, XᵀX and XᵀZ or the products of conjugate gradients: one task per shard, and their totals
    features  one task per shard scales and weights the rows; the client writes them to files, as answers need them

The client does what takes a bounded number of rows, such as tuning and the blend, and what is made of labels alone. It
holds a few numbers per row; features and labels are mapped from its files.

The paper's model, decoder "votes", needs rows for no answer, and the client never has them:

    load      one task per partition: check and scale the rows, and give them the same columns on all workers
    cluster   k-means on one worker, on the sample of rows that `fit` would draw
    embed     one task per partition: embed the label sets (the paper's step 1) and sum XᵀX and XᵀZ of each cluster
              (step 2); the sums of partitions are added in a tree
    index     sort the embeddings into buckets by the fingerprints of their label sets; the client writes each bucket
    decode    search all buckets for the neighbours of held-out rows, to choose ridge, threshold and calibration as
              `fit` does

The client receives one bucket at a time, XᵀX, XᵀZ, the label names and a bounded number of held-out rows, but never an
array with one line per training row. A task depends on its arguments alone, so the work of a worker that dies is
repeated elsewhere and gives the same result.
"""

from ripml.distributed.fitting import fit, train_files
from ripml.distributed.scoring import decision_function

__all__ = ["decision_function", "fit", "train_files"]
