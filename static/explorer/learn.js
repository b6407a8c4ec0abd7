// The glossary was part of this page: an address with one of its anchors leads there.
(() => {
  "use strict";
  const { hash } = location;
  if (hash.length > 1 && !document.getElementById(decodeURIComponent(hash.slice(1)))) {
    location.replace(document.querySelector("[data-glossary]").href + hash);
  }
})();
