"""From a predicted embedding to scores of labels (the paper's inference): votes, signals, the blend and calibration."""

from __future__ import annotations

from ripml.decoding.decoders import Blend, Decoder, LeastSquares, SignalDecoder, Sketch, Votes, WeightedVotes

__all__ = ["Blend", "Decoder", "LeastSquares", "SignalDecoder", "Sketch", "Votes", "WeightedVotes"]
