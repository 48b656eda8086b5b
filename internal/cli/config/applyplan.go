package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
	"postrider/policy"
	v1 "postrider/server/v1"
)

// same marks an object that needs no change; + - ~ are as in a diffLine.
const same = "="

// change is the change of one object.
type change struct {
	declared
	mark  string
	lines []diffLine
	etag  string // the compared version; "" for a new object
}

// applier compares a file with a server, and applies the changes to the server.
type applier struct {
	client *rest.Client
	file   *applyFile
	prune  bool
	out    io.Writer // for a line for each applied change
	stderr io.Writer // for progress

	// existing are the server's objects: all policies and topics, and the event subscriptions of the file's topics; with
	// prune those of all topics.
	existing        map[key]rest.Object
	changedPolicies map[string]bool // that the file creates or changes
}

// fileError is an error of the file that needs no server.
type fileError struct{ error }

// isFileError reports whether an error, also one of the server, is about the content of the file.
func isFileError(err error) bool {
	return errors.As(err, new(fileError)) || rest.IsStatus(err, http.StatusBadRequest) ||
		rest.IsStatus(err, http.StatusConflict)
}

// plan validates all objects of the file and returns the changes in the order in which they must be applied.
func (a *applier) plan(ctx context.Context) ([]change, error) {
	if err := a.read(ctx); err != nil {
		return nil, err
	}
	var changes []change
	var wrong []string
	line, all := terminal.NewProgressLine(a.stderr), len(a.file.objects)
	defer line.End()
	for i := range a.file.objects {
		d := &a.file.objects[i]
		line.Show(func() string { return fmt.Sprintf("%schecked %d of %d", terminal.Bar(i, all), i, all) })
		ch, err := a.compare(ctx, d)
		switch {
		case err == nil:
			changes = append(changes, ch)
		case isFileError(err):
			wrong = append(wrong, fmt.Sprintf("  %s: %s", d.title(), strings.ReplaceAll(err.Error(), "\n", "\n    ")))
		default:
			return nil, err
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("nothing was changed; fix these errors of the file:\n%s", strings.Join(wrong, "\n"))
	}
	if a.prune {
		changes = append(changes, a.leftovers()...)
	}
	return changes, nil
}

// read lists the server's objects.
func (a *applier) read(ctx context.Context) error {
	a.existing, a.changedPolicies = map[key]rest.Object{}, map[string]bool{}
	for kind, path := range map[string]string{kindPolicy: "/v1/policies", kindTopic: "/v1/topics"} {
		found, err := a.client.All(ctx, path)
		if err != nil {
			return err
		}
		for _, o := range found {
			a.existing[key{kind, "", textOf(o["name"])}] = o
		}
	}
	for k := range a.existing {
		if k.kind != kindTopic || !a.prune && !a.file.usesTopic(k.name) {
			continue
		}
		found, err := a.client.All(ctx, rest.TopicURL(k.name)+"/subscriptions")
		switch {
		case rest.IsStatus(err, http.StatusNotFound): // deleted since the topics were listed
			delete(a.existing, k)
		case err != nil:
			return err
		}
		for _, o := range found {
			a.existing[key{kindSubscription, k.name, textOf(o["name"])}] = o
		}
	}
	return nil
}

// compare returns the change from the server's object to the declared one.
func (a *applier) compare(ctx context.Context, d *declared) (change, error) {
	before := a.existing[d.key]
	ch := change{declared: *d, mark: "~", etag: textOf(before["etag"])}
	after, err := validated(d)
	switch {
	case err != nil:
		return ch, fileError{err}
	case d.kind == kindPolicy && before["builtIn"] == true:
		return ch, fileError{builtInError(d.name)}
	case d.ifMissing && before != nil:
		ch.mark = same
		return ch, nil
	case d.kind == kindSubscription:
		before, after, err = a.subscription(ctx, d, before)
	case before == nil:
		err = a.nameFree(d)
	}
	if err != nil {
		return ch, err
	}
	if before == nil {
		ch.mark, after = "+", d.settings // defaults of a new object are not listed
	}
	table := tables[d.kind]
	ch.lines = diff(table, before, after)
	if before != nil && len(ch.lines) == 0 {
		ch.mark = same
	}
	var fixed []error
	for _, line := range ch.lines {
		if before != nil && spec.Find(table, line.Property).Fixed {
			fixed = append(fixed, fmt.Errorf("%s cannot be changed once the topic exists", line))
		}
	}
	if len(fixed) > 0 {
		return ch, fileError{errors.Join(fixed...)}
	}
	if d.kind == kindPolicy && ch.mark != same {
		a.changedPolicies[d.name] = true
	}
	return ch, nil
}

// validated validates an object without the server. It returns a policy or topic with all defaults.
func validated(d *declared) (after rest.Object, err error) {
	body, err := terminal.EncodePlainly(d.settings)
	if err != nil {
		return nil, err
	}
	var shown any
	switch d.kind {
	case kindSubscription:
		return nil, v1.CheckSubscription(d.name, body)
	case kindTopic:
		shown, err = v1.ReadTopic(d.name, body)
	case kindPolicy:
		var p *policy.Policy
		if p, err = v1.ReadPolicy(d.name, body); err == nil {
			shown = v1.DescribePolicy(p, 0)
		}
	}
	if err != nil {
		return nil, err
	}
	return plainly(shown)
}

// nameFree rejects a new topic or policy whose name differs from an existing one only in letter case.
func (a *applier) nameFree(d *declared) error {
	for k := range a.existing {
		if k.kind == d.kind {
			if err := nameFree(d.name, k.name); err != nil {
				return fileError{err}
			}
		}
	}
	return nil
}

// subscription returns the settings of an event subscription before and after. The server's dry run has those after,
// unless topic or policy do not exist yet.
func (a *applier) subscription(
	ctx context.Context, d *declared, shown rest.Object,
) (before, after rest.Object, err error) {
	policy := key{kindPolicy, "", textOf(rest.ValueAt(d.settings, "retryPolicy.policy"))}
	topic := key{kindTopic, "", d.topic}
	var missing []error
	if policy.name != "" && a.existing[policy] == nil && a.file.find(policy) == nil {
		missing = append(missing,
			fmt.Errorf("retryPolicy.policy: neither the file nor the server has a policy %q", policy.name))
	}
	if a.existing[topic] == nil && a.file.find(topic) == nil {
		missing = append(missing, fmt.Errorf("neither the file nor the server has a topic %q", d.topic))
	}
	switch {
	case len(missing) > 0:
		return nil, nil, fileError{errors.Join(missing...)}
	case a.existing[topic] == nil:
		return nil, nil, nil
	}
	after, err = a.dryRun(ctx, d, policy.name)
	if err != nil || shown == nil {
		return nil, nil, err
	}
	if policy.name != "" && a.existing[policy] == nil {
		after["retryPolicy"] = d.settings["retryPolicy"] // validated only when the policy exists
	}
	after["endpointUrl"] = d.settings["endpointUrl"]
	given := secretHeaders(d.settings["deliveryAttributeMappings"])
	for name, properties := range secretHeaders(after["deliveryAttributeMappings"]) { // the server omits the values
		if own := given[name]; own != nil {
			properties["value"] = own["value"]
		}
	}
	before, err = a.revealed(ctx, d, shown)
	return before, after, err
}

// dryRun validates the settings on the server. If the file changes the retry policy, limits that only the new policy
// allows are validated when the event subscription is written.
func (a *applier) dryRun(ctx context.Context, d *declared, policy string) (after rest.Object, err error) {
	path := d.path() + "?dryRun=true"
	err = a.client.Call(ctx, http.MethodPut, path, d.settings, &after)
	if rest.IsStatus(err, http.StatusBadRequest) && a.changedPolicies[policy] {
		err = a.client.Call(ctx, http.MethodPut, path, without(d.settings, "retryPolicy"), &after)
	}
	return after, err
}

// revealed adds the secrets of an event subscription, so that changes of the endpoint and of headers are detected.
func (a *applier) revealed(ctx context.Context, d *declared, shown rest.Object) (rest.Object, error) {
	var full, headers rest.Object
	if err := a.client.Call(ctx, http.MethodPost, d.path()+"/getFullUrl", nil, &full); err != nil {
		return nil, err
	}
	shown["endpointUrl"] = full["endpointUrl"]
	if len(secretHeaders(shown["deliveryAttributeMappings"])) == 0 {
		return shown, nil
	}
	if err := a.client.Call(ctx, http.MethodPost, d.path()+"/getDeliveryAttributes", nil, &headers); err != nil {
		return nil, err
	}
	shown["deliveryAttributeMappings"] = headers["value"]
	return shown, nil
}

// ownPrefix begins the names of postrider's own topics.
const ownPrefix = "postrider."

// leftovers returns the deletions of objects that the file does not name. Event subscriptions come first, because
// topics and policies with event subscriptions cannot be deleted. For a list of the Azure CLI, which names no other
// objects, only event subscriptions of its topics are deleted.
func (a *applier) leftovers() (gone []change) {
	for k, o := range a.existing {
		own := strings.HasPrefix(k.topic+k.name, ownPrefix)
		switch {
		case a.file.find(k) != nil, o["builtIn"] == true, k.kind == kindTopic && own:
		case k.kind == kindSubscription && (own || a.file.azure) && !a.file.usesTopic(k.topic):
		case k.kind != kindSubscription && a.file.azure:
		default:
			gone = append(gone, change{declared: declared{key: k}, mark: "-", etag: textOf(o["etag"])})
		}
	}
	slices.SortFunc(gone, func(x, y change) int {
		return cmp.Or(slices.Index(kinds, y.kind)-slices.Index(kinds, x.kind), cmp.Compare(x.topic, y.topic),
			cmp.Compare(x.name, y.name))
	})
	return gone
}

// write applies the changes one after another and stops at the first error.
func (a *applier) write(ctx context.Context, changes []change) error {
	done, all := 0, countChanges(changes)
	for i := range changes {
		ch := &changes[i]
		if ch.mark == same {
			continue
		}
		err := terminal.Await(a.stderr, fmt.Sprintf("%s is written (%d of %d)", ch.title(), done+1, all),
			func() error { return a.writeOne(ctx, ch) })
		if rest.IsStatus(err, http.StatusPreconditionFailed) {
			err = errors.New("another client has changed it since it was compared")
		}
		if err != nil {
			return fmt.Errorf("%d of %s applied; %s was rejected: %w\nfix this and apply the file again", done,
				terminal.Plural(all, "change"), ch.title(), err)
		}
		done++
		fmt.Fprintf(a.out, "%s %s\n", map[string]string{"+": "created", "~": "changed", "-": "deleted"}[ch.mark], ch.title())
	}
	return nil
}

func (a *applier) writeOne(ctx context.Context, ch *change) error {
	var headers []string
	switch {
	case ch.etag != "":
		headers = []string{"If-Match", ch.etag}
	case ch.mark == "+":
		headers = []string{"If-None-Match", "*"}
	}
	if ch.mark == "-" {
		return a.client.Call(ctx, http.MethodDelete, ch.path(), nil, nil, headers...)
	}
	return a.client.Call(ctx, http.MethodPut, ch.path(), ch.settings, nil, headers...)
}
