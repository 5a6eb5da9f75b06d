/* For keyboards and screen readers. The theme makes a landmark of each copy button, so
 * there would be dozens of one name, and what scrolls sideways can't be reached by keys. */
const mend = () => {
  for (const nav of document.querySelectorAll("nav.md-code__nav:not([role])")) {
    nav.setAttribute("role", "none");
  }
  const wide = "pre > code:not([tabindex]), .md-typeset__scrollwrap:not([tabindex])";
  for (const one of document.querySelectorAll(wide)) {
    one.setAttribute("tabindex", "0");
  }
};
new MutationObserver(mend).observe(document.body, {
  attributeFilter: ["tabindex"],
  childList: true,
  subtree: true,
});
mend();
