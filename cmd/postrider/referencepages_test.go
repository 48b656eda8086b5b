package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"postrider/docs"
	"postrider/internal/metrics"
	"postrider/policy"
	"postrider/server"
)

// page writes data as the template of its name in testdata/reference.
func page(t *testing.T, name string, data any) string {
	t.Helper()
	file := name + ".tmpl"
	functions := template.FuncMap{"code": code, "cell": cell, "lines": lines, "join": strings.Join}
	parsed, err := template.New(file).Funcs(functions).ParseFiles("testdata/reference/" + file)
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString(generatedReference)
	require.NoError(t, parsed.Execute(&b, data))
	return b.String()
}

// lines is a text of several lines as a cell of a table.
func lines(text string) string {
	return strings.ReplaceAll(cell(strings.ReplaceAll(text, "\n", "\r")), "\r", "<br>")
}

// restOperation is an operation of the OpenAPI document.
type restOperation struct {
	Path, Method string
	ID           string `yaml:"operationId"`
	Summary      string
	Tags         []string
	Access       string `yaml:"x-access"`
	Responses    map[string]struct {
		Ref string `yaml:"$ref"`
	}
}

// restPage has the operations of the OpenAPI document by tag, and its texts of errors.
func restPage(t *testing.T) string {
	t.Helper()
	text, problems, err := server.Document()
	require.NoError(t, err)
	require.Empty(t, problems)
	var document struct {
		Tags       []struct{ Name, Description string }
		Paths      map[string]map[string]yaml.Node
		Components struct {
			Schemas   map[string]struct{ Description string }
			Responses map[string]struct{ Description string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &document))
	type group struct {
		Title, Anchor, Description string
		Operations                 []restOperation
	}
	data := struct {
		Groups    []group
		Errors    map[string]string
		Conflicts [][]string
	}{Errors: map[string]string{}}
	byTag := map[string][]restOperation{}
	methods := []string{"get", "put", "post", "patch", "delete"}
	roles := map[string]string{
		"none": "–", "read": "viewer", "operate": "operator", "admin": "admin",
		"query":   "viewer with the flag query",
		"publish": "access key of the topic, or API key that may publish",
		"receive": "access key of the topic, or API key that may receive",
	}
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		for _, method := range methods {
			node, has := document.Paths[path][method]
			if !has {
				continue
			}
			op := restOperation{Path: path, Method: strings.ToUpper(method)}
			require.NoError(t, node.Decode(&op))
			role, known := roles[op.Access]
			require.True(t, known, "%s: x-access %q", op.ID, op.Access)
			op.Access = role
			byTag[op.Tags[0]] = append(byTag[op.Tags[0]], op)
			for status, response := range op.Responses {
				if _, name, is := strings.Cut(response.Ref, "#/components/responses/"); is {
					data.Errors[status] = document.Components.Responses[name].Description
				}
			}
		}
	}
	for _, tag := range document.Tags {
		title := strings.ToUpper(tag.Name[:1]) + tag.Name[1:]
		anchor := strings.ReplaceAll(tag.Name, " ", "-")
		data.Groups = append(data.Groups, group{title, anchor, tag.Description, byTag[tag.Name]})
	}
	codes := strings.ReplaceAll(document.Components.Schemas["ConflictCode"].Description, "\n\n- ", "\n- ")
	for _, item := range strings.Split(codes, "\n- ")[1:] {
		code, text, _ := strings.Cut(item, ": ")
		data.Conflicts = append(data.Conflicts, []string{code, text})
	}
	return page(t, "rest.md", data)
}

// sqlView is a view of schema postrider.
type sqlView struct {
	Name, Comment string
	Columns       []struct{ Name, Type, Comment string }
}

// sqlFunction is a function of schema postrider.
type sqlFunction struct{ Name, Arguments, Returns, Comment, Role string }

// sqlRole is a role of the SQL contract.
type sqlRole struct {
	Name  string
	Reads bool
}

// sqlPage has the views, functions and roles of a migrated database with their comments.
func sqlPage(t *testing.T) string {
	t.Helper()
	db := migratedDatabase(t)
	return page(t, "sql.md", map[string]any{
		"Views": collected[sqlView](db, "views.sql"), "Functions": collected[sqlFunction](db, "functions.sql"),
		"Roles": collected[sqlRole](db, "roles.sql"), "Questions": docs.Questions(),
	})
}

// collected are the rows of a query in testdata/reference.
func collected[T any](db *database, file string) []T {
	db.t.Helper()
	query, err := os.ReadFile("testdata/reference/" + file)
	require.NoError(db.t, err)
	rows, err := db.pool.Query(db.t.Context(), string(query))
	require.NoError(db.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	require.NoError(db.t, err)
	return list
}

// alert is a rule of deploy/examples/prometheus/alerts.yaml.
type alert struct {
	Name        string `yaml:"alert"`
	For         string
	Labels      struct{ Severity string }
	Annotations struct{ Summary string }
}

// Runbook is the anchor of its runbook.
func (a alert) Runbook() string { return strings.ToLower(a.Name) }

// Meaning is the summary, with the names of labels for their values.
func (a alert) Meaning() string {
	return strings.NewReplacer("{{ $labels.", "`", " }}", "`").Replace(a.Annotations.Summary)
}

// metricsPage has the metrics by scope, and the alerts.
func metricsPage(t *testing.T) string {
	t.Helper()
	byScope := map[string][]*metrics.Metric{}
	for _, m := range metrics.List() {
		byScope[string(m.Scope)] = append(byScope[string(m.Scope)], m)
	}
	var rules struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, "deploy/examples/prometheus/alerts.yaml")), &rules))
	return page(t, "metrics.md", map[string]any{"Metrics": byScope, "Alerts": rules.Groups[0].Rules})
}

// policiesPage compares the built-in policies.
func policiesPage(t *testing.T) string {
	t.Helper()
	all := policy.Builtins()
	source := fromRoot(t, "policy/outcome.go")
	return page(t, "policies.md", map[string]any{
		"Policies": all, "Schedules": schedules(all), "Cells": cellRows(all), "Holds": probationRows(all),
		"Attempts": attemptRows(t, all),
		"Outcomes": constants(t, source, "Outcome"), "Errors": constants(t, source, "ErrorKind"),
		"Reasons": constants(t, source, "Reason"),
	})
}

// span writes a duration in its units, 0 as a dash.
func span(d time.Duration) string {
	if d >= 48*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	}
	var parts []string
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}} {
		if n := d / unit.size; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, unit.name))
			d %= unit.size
		}
	}
	return cmp.Or(strings.Join(parts, " "), "–")
}

func spanList(list []time.Duration) string {
	texts := make([]string, 0, len(list))
	for _, d := range list {
		texts = append(texts, span(d))
	}
	return strings.Join(texts, ", ")
}

func number(n int) string {
	if n == 0 {
		return "no limit"
	}
	return strconv.Itoa(n)
}

// schedules are the rows about when attempts are made: a title, and a value of each policy.
func schedules(all []policy.Policy) (rows [][]string) {
	row := func(title string, value func(p policy.Policy) string) {
		cells := []string{title}
		for _, p := range all {
			cells = append(cells, value(p))
		}
		rows = append(rows, cells)
	}
	row("Acknowledgement timeout", func(p policy.Policy) string { return span(p.AckTimeout) })
	row("Backoff steps", func(p policy.Policy) string { return spanList(p.Steps) })
	row("Then every", func(p policy.Policy) string { return span(p.Tail) })
	row("Counted from", func(p policy.Policy) string {
		return map[policy.Basis]string{
			policy.BasisGap: "the failed attempt", policy.BasisOffset: "the first attempt",
		}[p.Basis]
	})
	row("No attempt after", func(p policy.Policy) string { return span(p.RetryWindow) })
	row("Jitter", func(p policy.Policy) string {
		if p.JitterFraction == 0 {
			return "none"
		}
		return fmt.Sprintf("up to %.0f %%, at most %s", p.JitterFraction*100, span(p.JitterCap))
	})
	row("Time to live", func(p policy.Policy) string {
		return fmt.Sprintf("%s (%s to %s)", span(p.DefaultTTL), span(p.MinTTL), span(p.MaxTTL))
	})
	row("Expires", func(p policy.Policy) string {
		switch {
		case p.Expiry == policy.ExpiryAtTTL:
			return "when its time to live ends"
		case p.RetryWindow > 0:
			return "when the next attempt is due, at most after " + span(p.RetryWindow)
		}
		return "when the next attempt is due"
	})
	row("Attempts", func(p policy.Policy) string {
		return fmt.Sprintf("%s (%d to %d)", number(p.DefaultMaxAttempts), p.MinMaxAttempts, p.MaxMaxAttempts)
	})
	row("Late responses", func(p policy.Policy) string { return span(p.LateResponseWindow) })
	row("Cap of `Retry-After`", func(p policy.Policy) string { return span(p.RetryAfterCap) })
	row("Dead letter exported after", func(p policy.Policy) string {
		return strings.Replace(span(p.DeadLetterDelay), "–", "no wait", 1)
	})
	row("Export retried for", func(p policy.Policy) string { return span(p.DeadLetterExportWindow) })
	row("Batches", func(p policy.Policy) string { return map[bool]string{true: "yes", false: "no"}[p.Batching] })
	row("Probation starts after", func(p policy.Policy) string {
		switch {
		case p.Probation.Trigger == 0:
			return "–"
		case p.Probation.ByOutcome != nil:
			return "an outcome listed below"
		}
		return fmt.Sprintf("%d failures", p.Probation.Trigger)
	})
	row("Probation lasts", func(p policy.Policy) string {
		if p.Probation.First == 0 {
			return "–"
		}
		return span(p.Probation.First) + ", doubling up to " + span(p.Probation.Max)
	})
	return rows
}

// attemptRows are the times of the attempts at an endpoint that always responds 500.
func attemptRows(t *testing.T, all []policy.Policy) (rows [][]string) {
	t.Helper()
	for i := range all {
		x, err := policy.Explain(&all[i], policy.ExplainOptions{})
		require.NoError(t, err)
		var times []string
		for _, a := range x.Attempts {
			if len(times) == 12 {
				times = append(times, "…")
				break
			}
			times = append(times, cmp.Or(strings.TrimPrefix(span(time.Duration(a.AtSeconds)*time.Second), "–"), "0"))
		}
		rows = append(rows, []string{
			all[i].Name, strings.Join(times, ", "), strconv.Itoa(len(x.Attempts)),
			span(time.Duration(x.End.AtSeconds) * time.Second), string(x.End.Reason),
		})
	}
	return rows
}

// cellRows are the rows of the status table: conditions that have the same cells in all policies are one row.
func cellRows(all []policy.Policy) (rows [][]string) {
	conditions := map[string]bool{}
	for _, p := range all {
		for _, c := range p.Cells {
			conditions[c.Condition] = true
		}
	}
	for _, condition := range slices.Sorted(maps.Keys(conditions)) {
		row := []string{"`" + condition + "`"}
		for i := range all {
			r := policy.Result{Err: policy.ErrorKind(condition)}
			if status, err := strconv.Atoi(condition); err == nil {
				r = policy.Result{Status: status}
			}
			text := cellText(all[i], all[i].Cell(policy.KindWebhook, r))
			if azure := cellText(all[i], all[i].Cell(policy.KindAzureResource, r)); azure != text {
				text += "; Azure resource: " + azure
			}
			row = append(row, text)
		}
		same := slices.IndexFunc(rows, func(other []string) bool { return slices.Equal(other[1:], row[1:]) })
		if same >= 0 {
			rows[same][0] += " " + row[0]
		} else {
			rows = append(rows, row)
		}
	}
	return rows
}

func cellText(p policy.Policy, c policy.Cell) string {
	retry := "step"
	if c.MinDelay > 0 {
		retry = "≥ " + span(c.MinDelay)
	}
	switch {
	case c.Action == policy.ActionNeverIfDeadLetter:
		return "never*, else " + retry
	case c.Action == policy.ActionNever && c.MinDelay > 0 && !p.RetryTransportErrors:
		return "`safe`: " + retry + "; `documented`: never"
	case c.Action == policy.ActionRetry:
		return retry
	}
	return string(c.Action)
}

// probationRows are the probations by outcome.
func probationRows(all []policy.Policy) (rows [][]string) {
	for _, p := range all {
		for _, outcome := range slices.Sorted(maps.Keys(p.Probation.ByOutcome)) {
			rows = append(rows, []string{p.Name, string(outcome), span(p.Probation.ByOutcome[outcome])})
		}
	}
	return rows
}

// constants are the values of a type's constants in a Go file, and their comments.
func constants(t *testing.T, source, kind string) (rows [][]string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.ValueSpec); is && len(spec.Values) == 1 {
			value, isLiteral := spec.Values[0].(*ast.BasicLit)
			if name, isNamed := spec.Type.(*ast.Ident); isLiteral && isNamed && name.Name == kind && value.Value != `""` {
				text, err := strconv.Unquote(value.Value)
				require.NoError(t, err)
				comment := strings.TrimSpace(spec.Doc.Text() + spec.Comment.Text())
				require.NotEmpty(t, comment, "%s has no comment", text)
				rows = append(rows, []string{text, strings.ToUpper(comment[:1]) + comment[1:]})
			}
		}
		return true
	})
	require.NotEmpty(t, rows)
	return rows
}
