// The editor of events and patches. The pages are complete without this script.
(() => {
  "use strict";
  const text = document.querySelector(".code-field textarea"), mistake = document.querySelector("[data-position]");
  const editor = window.codeEditor(text, { language: "json", label: text.labels[0].textContent });
  // the page counts characters, JavaScript UTF-16 units
  if (mistake) editor.mark([...text.value].slice(0, mistake.dataset.position - 1).join("").length);
})();
