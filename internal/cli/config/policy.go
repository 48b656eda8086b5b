package config

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/endpointconf"
	"postrider/internal/terminal"
	"postrider/policy"
	v1 "postrider/server/v1"
)

// PolicyCmd is policy with its verbs.
type PolicyCmd struct {
	List    policyListCmd    `cmd:"" help:"List the retry policies: the built-in ones and your own." example:"policy list"`
	Show    policyShowCmd    `cmd:"" help:"Show a policy: schedule, limits and the status-code table." detail:"Retry-After, dead letters and probation are shown for behavior documented. With behavior safe, the default, Retry-After is honored, dead letters are rows, and probation holds deliveries." example:"policy show ga-2021; policy show namespace-2023 -o json"`
	Explain policyExplainCmd `cmd:"" help:"Preview the retry schedule of a policy: all attempts for one constant response, and the end of the delivery." detail:"Times are seconds from publishing. Jitter and probation are not included. With --rate-limit, the first attempt waits for the backlog, whose deliveries are assumed to succeed, one in each request." example:"policy explain ga-2021 --status 503; policy explain ga-2021 --status 503 --retry-after 24h; policy explain ga-2021 --rate-limit 50 --backlog 20000; policy explain namespace-2023 --ttl 20m -o json; policy explain ga-2018 --status 400 --dead-letter none; policy explain ga-2019 --status 400 --behavior documented"`
	Put     policyPutCmd     `cmd:"" help:"Create or replace your own policy, from a file." detail:"Every node uses it within a second, also for pending deliveries. Settings that the file leaves out take their defaults, see docs/guides/retry-policies.md." example:"policy show ga-2021 -o json > mine.json; policy put mine -f mine.json; policy explain mine --status 404; policy put mine -f mine.json --if-match \"$(postrider policy show mine -o json | jq -r .etag)\""`
	Delete  policyDeleteCmd  `cmd:"" help:"Delete your own policy that no event subscription uses." detail:"A policy that event subscriptions use is not deleted; the error names them." example:"policy delete mine; policy delete mine --yes"`
}

func policyURL(name string) string { return rest.ItemURL("/v1/policies", name) }

// onePolicy has the flags of verbs about one policy.
type onePolicy struct {
	rest.Flags
	Name string `arg:"" predictor:"policy" help:"Name of the policy, for example ga-2021."`
}

type policyListCmd struct{ rest.Flags }

func (c *policyListCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	list, err := client.All(ctx, "/v1/policies")
	if c.NoServer(err) {
		fmt.Fprintln(std.Err, "postrider: no server; the list has only the built-in policies:", err)
		list, err = builtInPolicies()
	}
	if err != nil {
		return err
	}
	policies := make([]*policy.Policy, len(list))
	for i, o := range list {
		if policies[i], err = readPolicy(o); err != nil {
			return err
		}
	}
	return c.Print(std.Out, list, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tATTEMPTS\tTIME TO LIVE\tACK TIMEOUT\tSOURCE")
		for _, p := range policies {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.Name, attempts(p.MaxAttempts.Default), span(p.TTL.Default),
				span(p.AckTimeout), sourceOf(p))
		}
	})
}

// builtInPolicies returns the built-in policies in the form of the REST API.
func builtInPolicies() (list []rest.Object, err error) {
	for _, p := range policy.Builtins() {
		o, err := plainly(v1.DescribePolicy(&p, 0))
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// readPolicy reads a retry policy in the form of the REST API.
func readPolicy(o rest.Object) (*policy.Policy, error) {
	p := new(policy.Policy)
	text, err := terminal.EncodePlainly(o)
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err != nil {
		return nil, fmt.Errorf("read retry policy %s of the server: %w", o["name"], err)
	}
	return p, nil
}

// find returns the policy and its form in the REST API. A built-in policy needs no server.
func (c *onePolicy) find(ctx context.Context) (*policy.Policy, any, error) {
	if p, ok := policy.Builtin(c.Name); ok {
		return &p, v1.DescribePolicy(&p, 0), nil
	}
	client, err := c.Client()
	if err != nil {
		return nil, nil, err
	}
	p, shown, err := FindPolicy(ctx, client, c.Name)
	if c.NoServer(err) {
		var names []string
		for _, p := range policy.Builtins() {
			names = append(names, p.Name)
		}
		return nil, nil, terminal.Usagef("no built-in policy %q (they are %s), and your own policies need a server: %v",
			c.Name, strings.Join(names, ", "), err)
	}
	return p, shown, err
}

// FindPolicy reads a policy from the server, and returns its form in the REST API, too.
func FindPolicy(ctx context.Context, client *rest.Client, name string) (*policy.Policy, rest.Object, error) {
	var shown rest.Object
	if err := client.Call(ctx, http.MethodGet, policyURL(name), nil, &shown); err != nil {
		return nil, nil, err
	}
	p, err := readPolicy(shown)
	return p, shown, err
}

func attempts(n int) string {
	if n == 0 {
		return "no limit"
	}
	return strconv.Itoa(n)
}

func span[T ~int64](of T) string {
	d := time.Duration(of)
	text := d.String()
	text = strings.TrimSuffix(text, "m0s")
	if strings.HasSuffix(text, "h0") {
		return strings.TrimSuffix(text, "0")
	}
	if d >= time.Minute && !strings.HasSuffix(text, "s") && !strings.HasSuffix(text, "h") {
		return text + "m"
	}
	return text
}

type policyShowCmd struct{ onePolicy }

func (c *policyShowCmd) Run(ctx context.Context, std terminal.Streams) error {
	p, shown, err := c.find(ctx)
	if err != nil {
		return err
	}
	return c.Print(std.Out, shown, func(w io.Writer) {
		fmt.Fprintf(w, "%s\t(%s)\n", p.Name, sourceOf(p))
		for _, group := range spec.Compare([]*policy.Policy{p}, span[time.Duration]) {
			fmt.Fprintf(w, "\n%s\n", strings.ToUpper(group.Name))
			for _, row := range group.Rows {
				fmt.Fprintf(w, "%s\t%s\n", row.Name, row.Cells[0])
			}
		}
		fmt.Fprintln(w, "\nENDPOINT\tRESPONSE\tACTION\tMINIMUM DELAY")
		for _, cell := range p.Cells {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cell.EndpointKind, cell.Condition, cell.Action, span(cell.MinDelay))
		}
	})
}

func sourceOf(p *policy.Policy) string {
	if p.Source == "" {
		return "your own"
	}
	return p.Source
}

type policyExplainCmd struct {
	onePolicy
	EndpointKind string         `help:"webhook, or azure-resource, the default of all other types of destinations." enum:"webhook,azure-resource" default:"webhook"`
	Status       *int           `help:"HTTP status of every response (default 500)." placeholder:"CODE"`
	Error        string         `help:"Error of every attempt instead of a status: timeout, canceled, socket, dns, unauthorized, argument; or a broker's response: full, disabled, session." enum:",timeout,canceled,socket,dns,unauthorized,argument,full,disabled,session" default:"" placeholder:"KIND"`
	MaxAttempts  *int           `help:"Limit of attempts instead of the policy's default." placeholder:"N"`
	TTL          *time.Duration `name:"ttl" help:"Time to live instead of the policy's default, in whole minutes: 20m, 24h, 7d." placeholder:"DURATION"`
	RetryAfter   time.Duration  `help:"Retry-After of every response, such as 10m; the policy limits it." placeholder:"DURATION"`
	Behavior     string         `help:"safe or documented: how literally an event subscription takes the policy." enum:"safe,documented" default:"safe"`
	DeadLetter   string         `help:"deadLetterDestination of the event subscription: rows or none (default: that of the behavior)." enum:",rows,none" default:"" placeholder:"rows|none"`
	RateLimit    *int           `help:"Rate limit of the event subscription: requests in each period." placeholder:"N"`
	RatePeriod   *int           `help:"Length of the rate limit's period in seconds (default 1)." placeholder:"SECONDS"`
	Backlog      *int           `help:"Deliveries that wait for the rate limit before this one." placeholder:"N"`
}

func (c *policyExplainCmd) Run(ctx context.Context, std terminal.Streams) error {
	p, _, err := c.find(ctx)
	if err != nil {
		return err
	}
	options, err := c.options()
	if err != nil {
		return err
	}
	explanation, err := policy.Explain(p, options)
	if err != nil {
		return terminal.Usagef("%v", err)
	}
	return c.Print(std.Out, explanation, func(w io.Writer) {
		fmt.Fprintln(w, "ATTEMPT\tAT SECOND\t\tREASON")
		for _, a := range explanation.Attempts {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", a.Number, seconds(a.AtSeconds),
				span(time.Duration(a.AtSeconds*float64(time.Second))), a.Why)
		}
		reason := string(explanation.End.Reason)
		if explanation.End.Error != "" {
			reason += ": " + explanation.End.Error
		}
		fmt.Fprintf(w, "end\t%s\t%s\t%s %s\n", seconds(explanation.End.AtSeconds),
			span(time.Duration(explanation.End.AtSeconds*float64(time.Second))), explanation.End.State, reason)
	})
}

func (c *policyExplainCmd) options() (policy.ExplainOptions, error) {
	o := policy.ExplainOptions{
		Kind: policy.EndpointKind(c.EndpointKind), Behavior: policy.Behavior(c.Behavior),
		Result: policy.Result{Err: policy.ErrorKind(c.Error)}, MaxAttempts: c.MaxAttempts, RetryAfter: c.RetryAfter,
	}
	if c.Status != nil {
		if *c.Status == 0 { // means no status in package policy
			return o, terminal.Usagef("--status 0: must be between 200 and 599")
		}
		o.Result.Status = *c.Status
	}
	if c.TTL != nil {
		minutes := int(*c.TTL / time.Minute)
		if time.Duration(minutes)*time.Minute != *c.TTL {
			return o, terminal.Usagef("--ttl %s: must be whole minutes", *c.TTL)
		}
		o.TTLMinutes = &minutes
	}
	if c.DeadLetter != "" {
		rows := c.DeadLetter == policy.DeadLetterRows
		o.DeadLetter = &rows
	}
	return o, c.setRateWait(&o)
}

// setRateWait sets how long the first attempt waits for the rate limit, which it checks as the API does.
func (c *policyExplainCmd) setRateWait(o *policy.ExplainOptions) error {
	switch {
	case c.RateLimit == nil && c.RatePeriod == nil && c.Backlog == nil:
		return nil
	case c.RateLimit == nil || c.Backlog == nil:
		return terminal.Usagef("--rate-limit and --backlog must be set together, --rate-period only with them")
	case *c.Backlog < 0:
		return terminal.Usagef("--backlog: must be 0 or more, not %d", *c.Backlog)
	}
	rate := endpointconf.DeliveryRate{Limit: *c.RateLimit, PeriodInSeconds: c.RatePeriod}
	text, err := json.Marshal(rest.Object{"deliveryRate": rate})
	if err != nil {
		return err
	}
	if found := spec.Check(spec.Subscription, text); len(found) > 0 {
		return terminal.Usagef("--%s: %s", spec.Find(spec.Subscription, found[0].Field).FlagName(), found[0].Message)
	}
	o.WaitedFor = "the rate limit of " + endpointconf.RateText(rate.Step(), false)
	o.Wait = time.Duration(min(float64(rate.Step())*float64(*c.Backlog), float64(longestWait)))
	return nil
}

// longestWait is longer than any time to live.
const longestWait = 100 * 365 * 24 * time.Hour

func seconds(s float64) string { return strconv.FormatFloat(s, 'f', -1, 64) }

type policyPutCmd struct {
	onePolicy
	rest.IfMatchFlag
	File string `short:"f" required:"" help:"JSON as policy show -o json prints it, and as PUT /v1/policies/{name} takes it; - reads it from standard input." placeholder:"FILE"`
}

func (c *policyPutCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	if _, builtIn := policy.Builtin(c.Name); builtIn {
		return builtInError(c.Name)
	}
	body, err := terminal.ReadFileOrInput(std.In, c.File)
	if err != nil {
		return err
	}
	if _, err := v1.ReadPolicy(c.Name, body); err != nil {
		return terminal.Usagef("%s: %v", c.File, err)
	}
	before := client.Call(ctx, http.MethodGet, policyURL(c.Name), nil, nil)
	if before != nil && !rest.IsStatus(before, http.StatusNotFound) {
		return before
	}
	return c.Do(ctx, std, client, http.MethodPut, policyURL(c.Name), rest.Raw(body), func(w io.Writer, _ rest.Object) {
		fmt.Fprintf(w, "Retry policy %s was %s.\n", c.Name, terminal.Either(before != nil, "created", "replaced"))
	}, c.Headers()...)
}

type policyDeleteCmd struct {
	onePolicy
	deleteFlags
}

func (c *policyDeleteCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	if _, builtIn := policy.Builtin(c.Name); builtIn {
		return builtInError(c.Name)
	}
	return c.delete(ctx, std, client, c.Flags, policyURL(c.Name), func() (string, error) {
		return fmt.Sprintf("Delete retry policy %s? Its settings are lost for good.", c.Name), nil
	}, "Retry policy "+c.Name+" was deleted.", rest.Object{"name": c.Name})
}

func builtInError(name string) error {
	return fmt.Errorf("retry policy %q is built in and never changes: copy it under another name", name)
}
