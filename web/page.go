package web

import (
	"html/template"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/policy"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

// numberParam is the id in the path; ErrNotFound if it is not one.
func numberParam(c echo.Context) (int64, error) {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil || id <= 0 {
		return 0, postgres.ErrNotFound
	}
	return id, nil
}

// uuidParam is the id in the path; ErrNotFound if it is not one.
func uuidParam(c echo.Context) (uuid.UUID, error) {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return id, postgres.ErrNotFound
	}
	return id, nil
}

// owner reads the fields of an event subscription and its topic.
func owner(f *display.Filter) (topic, subscription string) {
	return f.Name("Topic", "topic", "topic = ?"), f.Name("Event subscription", "subscription", "subscription = ?")
}

// helpers are the functions of the templates.
func (p *pages) helpers() template.FuncMap {
	return template.FuncMap{
		"asset":            p.assets.Path,
		"moment":           func(t time.Time) display.Moment { return display.MomentOf(t, p.Now()) },
		"age":              func(t time.Time) string { return display.Span(max(0, p.Now().Sub(t))) },
		"left":             func(t time.Time) string { return display.Span(max(0, t.Sub(p.Now()))) },
		"text":             display.Visible,
		"pretty":           func(text string) string { return display.Pretty(display.Visible(text)) },
		"n":                display.Grouped,
		"atMost":           display.AtMost,
		"plural":           display.Plural,
		"percent":          display.Percent,
		"succeeded":        func(all, failed int64) string { return display.Percent(all-failed, all) },
		"width":            func(part, whole int64) int { return int(100 * part / max(1, whole)) },
		"perSecond":        display.PerSecond,
		"ms":               display.Milliseconds,
		"seconds":          func(seconds float64) string { return display.Milliseconds(1000 * seconds) },
		"size":             display.Size,
		"span":             display.Span,
		"minutes":          display.Minutes,
		"status":           display.StatusText,
		"met":              display.Met,
		"sentence":         func(reason string) string { return policy.Reason(reason).Sentence() },
		"allowed":          display.AttemptsAllowed,
		"tone":             display.Tone,
		"provisioning":     display.Provisioning,
		"spark":            display.SparkOf,
		"longest":          display.Longest,
		"phases":           display.PhasesOf,
		"waited":           display.Waited,
		"verdict":          display.VerdictText,
		"progress":         func(o query.Operation) progress { return progressOf(o, p.Now()) },
		"operationKind":    func(kind string) string { return operationKinds[kind] },
		"yes":              yes,
		"shell":            display.QuoteShell,
		"clock":            func(t time.Time) string { return t.UTC().Format(time.DateTime) },
		"rfc3339":          func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"day":              func(t time.Time) string { return t.Format(time.DateOnly) },
		"subscriptionPath": subscriptionPath,
		"userPath":         userPath,
		"apiKeyPath":       apiKeyPath,
		"add1":             func(n int) int { return n + 1 },
	}
}
