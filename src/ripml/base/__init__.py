"""The lowest layer: errors, parallel work, workspace, arrays, products, the registry of stages, model folders."""
