"""The paper's model on the workers of a Dask cluster: that of `RIPML.fit`, from rows that no machine holds alone.

    load      a task a partition: rows checked and scaled, labels numbered alike on all workers
    clusters  k-means on the rows that `fit` would draw, on one worker
    pass      a task a partition: its label sets embedded, XᵀX and XᵀZ of each cluster, which add up in a tree
    index     the embeddings sorted into buckets by the fingerprints of label sets, merged, written by the client
    vote      rows left out ask all buckets for their neighbours; ridge, threshold and calibration are those of `fit`

The client sees what is of the size of a bucket, of XᵀX or of the list of labels, never something of the size of the
rows. Every task can be done again from its input, so a worker that dies costs time and changes nothing.
"""

from ripml.distributed.engine import fit, train_files
from ripml.distributed.scoring import decision_function

__all__ = ["decision_function", "fit", "train_files"]
