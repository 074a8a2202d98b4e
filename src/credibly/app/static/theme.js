"use strict";
// Before anything is drawn: the colours that were chosen last time.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch (error) { /* no storage: the colours of the system */ }
