// The page is whole without this: it only adds buttons that copy.
for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) break; // browsers have one where the page came by HTTPS, or from this machine
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
