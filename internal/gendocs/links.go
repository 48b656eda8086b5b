package main

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

var (
	// relativeLink is the target of a link or a picture within the repository.
	relativeLink = regexp.MustCompile(`\]\(([^)\s:]+)\)|(?:src|srcset|href)="([^":]+)"`)
	// namedPage is a page, perhaps with a heading, that code or a configuration file names.
	namedPage = regexp.MustCompile(`\bdocs/[A-Za-z/-]+\.md(?:#[a-z0-9_-]+)?`)
	heading   = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	// notInAnchors are the characters that GitHub leaves out of a heading's anchor.
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	linkedText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the anchors of the headings of a page, as GitHub derives them.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		text := strings.ToLower(linkedText.ReplaceAllString(strings.TrimSpace(h[1]), "$1"))
		found[strings.ReplaceAll(notInAnchors.ReplaceAllString(text, ""), " ", "-")] = true
	}
	return found
}

// brokenLink returns what is wrong with a target, which is a path from the root, with or without an anchor.
func (r *repository) brokenLink(from, target string) []string {
	name, anchor, _ := strings.Cut(target, "#")
	if !r.exists(name) {
		return []string{from + ": no file " + target}
	}
	if anchor != "" && !anchors(r.texts[name])[anchor] {
		return []string{from + ": no heading " + target}
	}
	return nil
}

// linkProblems returns the links and pictures of pages that lead to no file, or to no heading of it.
func linkProblems(r *repository) (problems []string) {
	for _, name := range r.pages() {
		for _, found := range relativeLink.FindAllStringSubmatch(codeBlock.ReplaceAllString(r.texts[name], ""), -1) {
			target := found[1] + found[2]
			if strings.HasPrefix(target, "#") {
				target = path.Base(name) + target
			}
			problems = append(problems, r.brokenLink(name, path.Join(path.Dir(name), target))...)
		}
	}
	return problems
}

// namedPageProblems returns the pages that code, pages and configuration files name and that do not exist.
func namedPageProblems(r *repository) (problems []string) {
	for _, name := range r.in(".", ".go", ".sql", ".yaml", ".html", ".service", ".json", ".md") {
		if plants(name) {
			continue
		}
		for _, target := range namedPage.FindAllString(r.texts[name], -1) {
			problems = append(problems, r.brokenLink(name, target)...)
		}
	}
	return problems
}

// indexProblems returns the pages of docs that docs/README.md does not link, and other pages that README.md does not.
func indexProblems(r *repository) (problems []string) {
	for _, name := range r.pages() {
		index, page := "README.md", name
		if inDocs, is := strings.CutPrefix(name, "docs/"); is && inDocs != "README.md" {
			index, page = "docs/README.md", inDocs
		}
		if name != "README.md" && !strings.Contains(r.texts[index], "]("+page+")") {
			problems = append(problems, fmt.Sprintf("%s: has no link to %s: add it to this index", index, name))
		}
	}
	return problems
}

// headingProblems returns the pages on which two headings have the same anchor: only one of them could be linked.
func headingProblems(r *repository) (problems []string) {
	for _, name := range r.pages() {
		page := codeBlock.ReplaceAllString(r.texts[name], "")
		if len(anchors(page)) != len(heading.FindAllString(page, -1)) {
			problems = append(problems, name+": two headings have the same anchor: rename one")
		}
	}
	return problems
}

// shellBlock is the first line of a block of commands for a shell or psql. Tests run the blocks with the tag "run".
var shellBlock = regexp.MustCompile("(?m)^ *```(sh|bash|shell|console|sql)((?: [a-z]+)*)$")

// runTagProblems requires that tests run seven eighths of the blocks of commands on pages. The rest installs packages,
// needs Docker, or takes ten minutes.
func runTagProblems(r *repository) (problems []string) {
	blocks, run := map[bool]int{}, map[bool]int{} // of SQL and of commands
	var untagged []string
	for _, name := range r.pages() {
		page := r.texts[name]
		for _, at := range shellBlock.FindAllStringSubmatchIndex(page, -1) {
			isSQL := page[at[2]:at[3]] == "sql"
			blocks[isSQL]++
			if strings.HasPrefix(page[at[4]:at[5]], " run") {
				run[isSQL]++
			} else {
				untagged = append(untagged, fmt.Sprintf("%s:%d", name, 1+strings.Count(page[:at[0]], "\n")))
			}
		}
	}
	for isSQL, n := range blocks {
		if 8*run[isSQL] < 7*n {
			problems = append(problems, fmt.Sprintf("%d of %d blocks (SQL: %t) have the tag run, less than 7 of 8: "+
				"tag some of %s", run[isSQL], n, isSQL, strings.Join(untagged, ", ")))
		}
	}
	return problems
}
