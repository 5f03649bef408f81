// Before anything is painted: the colours chosen here, if any.
try {
  const theme = localStorage.getItem("ripml-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Storage is refused.
}
