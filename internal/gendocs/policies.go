package main

import (
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"postrider/policy"
)

// policiesPage compares the built-in policies.
func policiesPage(context.Context) (string, error) {
	all := policy.Builtins()
	attempts, err := attemptRows(all)
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, p := range all {
		for _, outcome := range slices.Sorted(maps.Keys(p.Probation.ByOutcome)) {
			rows = append(rows, []string{p.Name, string(outcome), span(p.Probation.ByOutcome[outcome])})
		}
	}
	data := map[string]any{
		"Policies": all, "Schedules": schedules(all), "Cells": cellRows(all), "Holds": rows,
		"Attempts": attempts,
	}
	file, err := parser.ParseFile(token.NewFileSet(), "policy/outcome.go", nil, parser.ParseComments)
	if err != nil {
		return "", err
	}
	for name, kind := range map[string]string{"Outcomes": "Outcome", "Errors": "ErrorKind", "Reasons": "Reason"} {
		if data[name], err = constants(file, kind); err != nil {
			return "", err
		}
	}
	return page("policies.md", data)
}

// span returns a duration with its units, and a dash for 0.
func span[T ~int64](of T) string {
	d := time.Duration(of)
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

func number(n int) string {
	if n == 0 {
		return "no limit"
	}
	return strconv.Itoa(n)
}

// schedules returns the rows about the times of attempts: a title, and a value of each policy.
func schedules(all []policy.Policy) (rows [][]string) {
	row := func(title string, value func(p policy.Policy) string) {
		cells := []string{title}
		for _, p := range all {
			cells = append(cells, value(p))
		}
		rows = append(rows, cells)
	}
	row("Acknowledgement timeout", func(p policy.Policy) string { return span(p.AckTimeout) })
	row("Backoff steps", func(p policy.Policy) string {
		texts := make([]string, 0, len(p.Steps))
		for _, d := range p.Steps {
			texts = append(texts, span(d))
		}
		return strings.Join(texts, ", ")
	})
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
		return fmt.Sprintf("%s (%s to %s)", span(p.TTL.Default), span(p.TTL.Least), span(p.TTL.Most))
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
		return fmt.Sprintf("%s (%d to %d)", number(p.MaxAttempts.Default), p.MaxAttempts.Least, p.MaxAttempts.Most)
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
		case len(p.Probation.ByOutcome) > 0:
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

// attemptRows returns the times of the attempts at an endpoint that always responds 500.
func attemptRows(all []policy.Policy) (rows [][]string, err error) {
	for i := range all {
		x, err := policy.Explain(&all[i], policy.ExplainOptions{})
		if err != nil {
			return nil, fmt.Errorf("explain %s: %w", all[i].Name, err)
		}
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
	return rows, nil
}

// cellRows returns the rows of the status table. Conditions that have the same cells in all policies are one row.
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

// constants returns the values of the constants of a type, and their comments.
func constants(file *ast.File, kind string) (rows [][]string, err error) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || len(spec.Values) != 1 {
			return true
		}
		value, isLiteral := spec.Values[0].(*ast.BasicLit)
		if name, isNamed := spec.Type.(*ast.Ident); !isLiteral || !isNamed || name.Name != kind || value.Value == `""` {
			return true
		}
		comment := strings.TrimSpace(spec.Doc.Text() + spec.Comment.Text())
		if comment == "" {
			err = fmt.Errorf("policy/outcome.go: the constant %s has no comment: add one", value.Value)
			return false
		}
		rows = append(rows, []string{strings.Trim(value.Value, `"`), strings.ToUpper(comment[:1]) + comment[1:]})
		return true
	})
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("policy/outcome.go has no constants of type %s", kind)
	}
	return rows, err
}
