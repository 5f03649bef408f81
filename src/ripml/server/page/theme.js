// Before the first paint: apply the saved theme.
try {
  const theme = localStorage.getItem("ripml-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Storage is blocked.
}
