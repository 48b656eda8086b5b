// The dashboard's editor for SQL and JSON, built by `make editor`. It is in a shadow root: there its styles are adopted
// style sheets, which the content security policy allows.
import { autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { PostgreSQL, sql, SQLDialect } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

// The colors are the variables of style.css, so that they follow the color scheme.
const colors = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.bool, tags.null], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: tags.number, color: "var(--code-number)" },
  { tag: [tags.typeName, tags.propertyName, tags.standard(tags.name)], color: "var(--code-name)" },
  { tag: tags.comment, color: "var(--quiet)" },
]);

const theme = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--card)", fontSize: "inherit" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5", minHeight: "16rem", maxHeight: "60vh" },
  ".cm-content": { caretColor: "var(--ink)", padding: ".375rem 0" },
  ".cm-gutters": { color: "var(--quiet)", backgroundColor: "var(--card)", border: "0" },
  ".cm-lineNumbers .cm-gutterElement": { minWidth: "2rem", paddingInline: "0 .5rem" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--accent-ground)" },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--bad-ground)" },
  ".cm-mistake": { textDecoration: "underline wavy var(--bad-mark)", textUnderlineOffset: "3px", backgroundColor: "var(--bad-ground)" },
  ".cm-tooltip": { color: "var(--ink)", backgroundColor: "var(--card)", border: "1px solid var(--strong-line)", borderRadius: "6px" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "16rem" },
  ".cm-tooltip-autocomplete > ul > li": { padding: ".125rem .5rem" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { color: "var(--ink)", backgroundColor: "var(--accent-ground)" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
  ".cm-completionDetail": { color: "var(--quiet)", fontStyle: "normal" },
  ".cm-tooltip.cm-completionInfo": { maxWidth: "24rem", padding: ".375rem .5rem", fontFamily: "system-ui, sans-serif" },
});

// Chromium would keep the color of a replaced text as an inline style, which the content security policy reports.
const replaceSelection = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { from, to, empty } = view.state.selection.main, text = event.data;
    if (event.inputType !== "insertText" || !text || empty || view.composing) return false;
    const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
    const handlers = view.state.facet(EditorView.inputHandler); // such as that for brackets
    if (!handlers.some((handle) => handle(view, from, to, text, insert))) view.dispatch(insert());
    return true;
  },
});

// The marked mistake, if any. A change of the text removes it.
const setMistake = StateEffect.define();
const mistake = StateField.define({
  create: () => Decoration.none,
  update(marks, change) {
    for (const effect of change.effects) if (effect.is(setMistake)) return effect.value;
    return change.docChanged ? Decoration.none : marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});

// The completions of a schema: [{name, comment, columns: [{name, type, comment}]}].
function namespace(schema, views) {
  const children = {};
  for (const view of views) {
    children[view.name] = {
      self: { label: view.name, type: "class", info: view.comment },
      children: view.columns.map((c) => ({ label: c.name, type: "property", detail: c.type, info: c.comment || undefined })),
    };
  }
  return { [schema]: { self: { label: schema, type: "namespace" }, children } };
}

// PostgreSQL's dialect, in which a column such as subscription is no keyword.
function dialect(views) {
  const columns = new Set(views.flatMap((view) => view.columns.map((column) => column.name)));
  const keywords = PostgreSQL.spec.keywords.split(" ").filter((word) => !columns.has(word)).join(" ");
  return SQLDialect.define({ ...PostgreSQL.spec, keywords });
}

// codeEditor puts an editor in place of a textarea. options: language ("sql" or "json"), label, and for SQL views and
// run, a function for Ctrl+Enter. The textarea keeps the text for its form. mark marks the character at an offset;
// a negative one removes the mark.
window.codeEditor = (textarea, { language, label, views = [], run }) => {
  const host = document.createElement("div"), root = host.attachShadow({ mode: "open" });
  const languages = {
    sql: () => sql({ dialect: dialect(views), schema: namespace("postrider", views), defaultSchema: "postrider" }), json,
  };
  const runs = { key: "Mod-Enter", run: (view) => { closeCompletion(view); run(); return true; } };
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: textarea.value,
      extensions: [
        keymap.of(run ? [runs] : []), lineNumbers(), history(), indentOnInput(), bracketMatching(), closeBrackets(), autocompletion(),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        syntaxHighlighting(colors), theme, mistake, replaceSelection, languages[language](), EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", tabindex: "0" }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) {
            textarea.value = update.state.doc.toString();
            textarea.dispatchEvent(new Event("input", { bubbles: true }));
          }
        }),
      ],
    }),
  });
  host.className = "editor";
  textarea.hidden = true;
  textarea.after(host);
  return {
    focus: () => view.focus(),
    text: (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } }),
    mark(offset) {
      const { doc } = view.state, from = Math.min(Math.max(offset, 0), doc.length);
      const word = /^[\p{L}\p{N}_]+|^./u.exec(doc.sliceString(from));
      const to = word ? from + word[0].length : from;
      const marks = offset >= 0 && to > from ? Decoration.set(Decoration.mark({ class: "cm-mistake" }).range(from, to)) : Decoration.none;
      view.dispatch({
        effects: [setMistake.of(marks), ...(offset >= 0 ? [EditorView.scrollIntoView(from)] : [])],
        ...(offset >= 0 ? { selection: { anchor: from } } : {}),
      });
    },
  };
};

// A page without a script of its own names the language: <textarea data-code="json">. Its label is the first.
for (const textarea of document.querySelectorAll("textarea[data-code]")) {
  window.codeEditor(textarea, { language: textarea.dataset.code, label: textarea.labels[0].firstChild.textContent.trim() });
}
