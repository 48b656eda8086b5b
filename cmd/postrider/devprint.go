package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"postrider/internal/terminal"
	"postrider/jobs"
	"postrider/policy"
	"postrider/server"
)

// row prints a name and its value.
func (d *dev) row(name, value string) { fmt.Fprintf(d.out, "  %-15s%s\n", name, value) }

func (d *dev) published(r server.PublishReport) {
	var lines strings.Builder
	for i := range r.Events {
		fmt.Fprintf(&lines, "%s --> %-10s %s (%s), matched by %d\n", terminal.Clock(time.Now()), terminal.Cell(r.Topic),
			terminal.Cell(r.Events[i].ID), terminal.Cell(r.Events[i].Type), r.Matched[i])
	}
	_, _ = io.WriteString(d.out, lines.String())
}

func (d *dev) attempted(r jobs.AttemptReport) {
	what, result := terminal.Cell(r.EventID), fmt.Sprint(r.Result.Status)
	if r.Events > 1 {
		what += fmt.Sprintf(" and %d more", r.Events-1)
	}
	if r.Result.Err != policy.ErrorNone {
		result = string(r.Result.Err)
	}
	fmt.Fprintf(d.out, "%s <-- %-10s %s attempt %d: %s in %s, %s\n", terminal.Clock(time.Now()),
		terminal.Cell(r.Subscription), what, r.Number, result, r.Duration.Round(100*time.Microsecond), verdict(r))
}

// verdict describes what the policy decided after the attempt.
func verdict(r jobs.AttemptReport) string {
	switch r.Verdict.Action {
	case policy.Delivered:
		return "delivered"
	case policy.Retry:
		wait := r.Verdict.At.Sub(r.Now)
		return fmt.Sprintf("next attempt in %s (%s)",
			wait.Round(terminal.Either(wait < time.Second, time.Millisecond, 100*time.Millisecond)), r.Verdict.Why)
	case policy.DeadLetter:
		return fmt.Sprintf("dead-lettered: %s", r.Verdict.Reason)
	default:
		return fmt.Sprintf("dropped: %s", r.Verdict.Reason)
	}
}

func (d *dev) curl(flags, api, id string) string {
	return fmt.Sprintf("  curl -i %s'%s/topics/%s/api/events?api-version=2018-01-01' -H 'aeg-sas-key: %s' -H "+
		"'content-type: application/json' \\\n    -d '[%s]'",
		flags, api, demoTopic, d.ready.TopicKey, demoEvent(id, "2026-01-01T00:00:00Z"))
}

func (d *dev) greet() {
	program := os.Args[0]
	d.row("REST API", d.ready.API+"   reference "+d.ready.API+"/openapi")
	d.row("Dashboard", d.ready.API+"/ui/")
	if d.ready.APITLS != "" {
		d.row("With TLS", d.ready.APITLS+"   certificate "+d.ready.CAFile)
	}
	if d.debug != nil {
		d.row("Profiles", "http://"+d.debug.Addr().String()+"/debug/pprof/")
	}
	d.row("Demo endpoint", d.ready.Sink+"/ok  /flaky  /slow  /status/{code}  /hang")
	d.row("Database", d.ready.DatabaseURL)
	d.row("Topic", demoTopic+" with event subscriptions accepted, flaky (500 twice, then 204) and rejected (400)")
	d.row("Access key", d.ready.TopicKey)
	d.row("Admin token", d.ready.AdminToken)
	if n := d.options.TimeScale; n > 1 {
		d.row("Time", fmt.Sprintf("%d times as fast: 24 hours of retries take %s; ack timeouts are real", n,
			(24*time.Hour/time.Duration(n)).Round(time.Millisecond)))
	}
	// By these lines the commands of the documentation find this service, on whatever ports.
	fmt.Fprintf(d.out, "\nVariables of commands and curl in another terminal:\n  export POSTRIDER_URL=%s\n"+
		"  export POSTRIDER_API_KEY=%s\n  export POSTRIDER_DATABASE_URL='%s'\n  export SINK=%s\n",
		d.ready.API, d.ready.AdminToken, d.ready.DatabaseURL, d.ready.Sink)
	fmt.Fprintln(d.out, "Publish an event:")
	fmt.Fprintln(d.out, d.curl("", d.ready.API, "my-1"))
	if d.ready.APITLS != "" {
		fmt.Fprintln(d.out, "Publish an event with TLS:")
		fmt.Fprintln(d.out, d.curl(fmt.Sprintf("--cacert '%s' ", d.ready.CAFile), d.ready.APITLS, "my-2"))
	}
	if d.local() { // otherwise the verbs need the admin token
		fmt.Fprintln(d.out, "Publish a sample order; `listen --topic demo` receives it:")
		fmt.Fprintf(d.out, "  %s publish %s --url %s --sample\n", program, demoTopic, d.ready.API)
	}
	fmt.Fprintln(d.out, "Query the dead letters:")
	fmt.Fprintf(d.out, "  %s sql --database-url '%s' \"select event_id, subscription, reason, attempts, last_outcome, "+
		"last_status from postrider.dead_letters\"\n", program, d.ready.DatabaseURL)
	fmt.Fprintln(d.out, "Preview a retry schedule:")
	fmt.Fprintf(d.out, "  %s policy explain ga-2021 --status 503\n\n", program)
}
