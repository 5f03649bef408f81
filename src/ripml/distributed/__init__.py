"""The paper's model, fitted by the workers of a Dask cluster: the same model as `RIPML.fit`, for rows that no single
machine holds.

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
