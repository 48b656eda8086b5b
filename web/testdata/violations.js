// Violations of the page by axe-core, one per line. It does not check placeholders, so they become values for a moment.
(async () => {
  const empty = [...document.querySelectorAll("textarea[placeholder], :is([type=text], [type=search], [type=url])[placeholder]")].filter((field) => !field.value);
  for (const field of empty) {
    const { color, opacity } = getComputedStyle(field, "::placeholder");
    field.value = field.placeholder;
    field.style.color = `color-mix(in srgb, ${color} ${opacity * 100}%, transparent)`;
  }
  const { violations } = await axe.run({ resultTypes: ["violations"] });
  for (const field of empty) field.value = field.style.color = "";
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id} ${node.target}: ${node.failureSummary}`)).join("\n");
})()
