package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"postrider/internal/catalog/spec"
	"postrider/policy"
)

// policiesPage compares the built-in policies.
func policiesPage(context.Context) (string, error) {
	all := policy.Builtins()
	attempts, err := attemptRows(all)
	if err != nil {
		return "", err
	}
	policies := make([]*policy.Policy, len(all))
	for i := range all {
		policies[i] = &all[i]
	}
	data := map[string]any{
		"Policies": all, "Groups": spec.Compare(policies, span[time.Duration]), "Cells": cellRows(all),
		"Attempts": attempts,
	}
	read, err := readComments(".", "policy")
	if err != nil {
		return "", err
	}
	for name, kind := range map[string]string{"Outcomes": "Outcome", "Errors": "ErrorKind", "Reasons": "Reason"} {
		var rows [][]string
		for _, c := range read.constants["postrider/policy."+kind] {
			switch {
			case c.value == `""`:
			case c.text == "":
				return "", fmt.Errorf("package policy: the constant %s has no comment: add one", c.value)
			default:
				rows = append(rows, []string{strings.Trim(c.value, `"`), sentence(c.text)})
			}
		}
		if data[name] = rows; rows == nil {
			return "", fmt.Errorf("package policy has no constants of type %s", kind)
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
