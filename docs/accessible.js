// Parts that the theme builds in the browser: what scrolls can be reached by keyboard, and the
// buttons beside code are no landmarks.
function mend() {
  document.querySelectorAll(".md-code__nav").forEach((nav) => nav.setAttribute("role", "none"));
  document
    .querySelectorAll(".md-typeset__scrollwrap, math[display=block], .md-typeset pre > code")
    .forEach((part) => {
      if (part.scrollWidth > part.clientWidth) part.setAttribute("tabindex", "0");
    });
}
new MutationObserver(mend).observe(document.documentElement, { childList: true, subtree: true });
addEventListener("resize", mend);
addEventListener("load", mend);
