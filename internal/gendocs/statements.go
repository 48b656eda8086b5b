package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
)

var (
	statementUse = regexp.MustCompile(`(?:\bsql\(|\(r, )"([a-z_]+)"`)
	includeLine  = regexp.MustCompile(`-- ([a-z_]+)\.sql\n`)
)

// statementProblems checks the names of SQL files, which postgres.SQLFiles finds when a statement is used: it returns
// names without a file, and files without a use.
func statementProblems(r *repository) (problems []string) {
	for _, folder := range []string{"internal/access", "internal/catalog", "internal/query"} {
		used := map[string]bool{}
		for _, name := range r.in(folder, ".go", ".sql") {
			find := statementUse
			if path.Ext(name) == ".sql" {
				find = includeLine
			}
			for _, found := range find.FindAllStringSubmatch(r.texts[name], -1) {
				file := folder + "/sql/" + found[1]
				used[file+".sql"], used[file+"_end.sql"] = true, true
				if !slices.Contains(r.names, file+".sql") {
					problems = append(problems, fmt.Sprintf("%s: no file %s.sql", name, file))
				}
			}
		}
		for _, file := range r.in(folder+"/sql", ".sql") {
			if !used[file] {
				problems = append(problems, fmt.Sprintf("%s: no statement uses this file: remove it", file))
			}
		}
	}
	return problems
}
