package management

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"postrider/catalog/spec"
	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/server/management"
)

// same marks what is already as the file declares it; + - ~ are as in a diffLine.
const same = "="

// change is what apply does to one object.
type change struct {
	declared
	mark  string
	lines []diffLine
	etag  string // the version that was compared; "" of what does not exist
}

// applier compares a file with a server, and changes the server accordingly.
type applier struct {
	client *rest.Client
	file   *applyFile
	prune  bool
	out    io.Writer // reports each change that was made

	// existing are the server's objects: all policies and topics, and the event subscriptions of the file's topics; with
	// prune those of all topics.
	existing  map[key]rest.Object
	unsettled map[string]bool // policies that the file creates or changes
}

// mistake is an error of the file.
type mistake struct{ error }

// isMistake reports whether the file is to be corrected. Other errors are the server's.
func isMistake(err error) bool {
	var own mistake
	return errors.As(err, &own) || rest.IsStatus(err, http.StatusBadRequest) || rest.IsStatus(err, http.StatusConflict)
}

// plan checks all objects of the file and returns the changes in the order in which they are to be made.
func (a *applier) plan(ctx context.Context) ([]change, error) {
	if err := a.read(ctx); err != nil {
		return nil, err
	}
	var changes []change
	var mistakes []string
	line, all := terminal.NewProgressLine(), len(a.file.objects)
	defer line.End()
	for i := range a.file.objects {
		d := &a.file.objects[i]
		line.Show(func() string { return fmt.Sprintf("%schecked %d of %d", terminal.Bar(i, all), i, all) })
		ch, err := a.compare(ctx, d)
		switch {
		case err == nil:
			changes = append(changes, ch)
		case isMistake(err):
			mistakes = append(mistakes, fmt.Sprintf("  %s: %s", d.title(), strings.ReplaceAll(err.Error(), "\n", "\n    ")))
		default:
			return nil, err
		}
	}
	if len(mistakes) > 0 {
		return nil, fmt.Errorf("nothing was changed, for there are mistakes:\n%s", strings.Join(mistakes, "\n"))
	}
	if a.prune {
		changes = append(changes, a.leftovers()...)
	}
	return changes, nil
}

// read lists the server's objects.
func (a *applier) read(ctx context.Context) error {
	a.existing, a.unsettled = map[key]rest.Object{}, map[string]bool{}
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

// compare is the change from the server's object to the declared one.
func (a *applier) compare(ctx context.Context, d *declared) (change, error) {
	before := a.existing[d.key]
	ch := change{declared: *d, mark: "~", etag: textOf(before["etag"])}
	after, err := checked(d)
	switch {
	case err != nil:
		return ch, mistake{err}
	case d.kind == kindPolicy && before["builtIn"] == true:
		return ch, mistake{builtInError(d.name)}
	case d.ifMissing && before != nil:
		ch.mark = same
		return ch, nil
	case d.kind == kindTopic && before == nil:
		err = a.nameFree(d)
	case d.kind == kindSubscription:
		before, after, err = a.subscription(ctx, d, before)
	}
	if err != nil {
		return ch, err
	}
	if before == nil {
		ch.mark, after = "+", d.settings // of a new object, its declared settings are enough to see
	}
	table := tables[d.kind]
	ch.lines = diff(table, before, after)
	if before != nil && len(ch.lines) == 0 {
		ch.mark = same
	}
	for _, line := range ch.lines {
		if before != nil && spec.Find(table, line.property).Fixed {
			return ch, mistake{fmt.Errorf("%s cannot be changed once the topic exists", line)}
		}
	}
	a.unsettled[d.name] = a.unsettled[d.name] || d.kind == kindPolicy && ch.mark != same
	return ch, nil
}

// checked finds mistakes that need no server. Of policies and topics it returns the settings with all defaults.
func checked(d *declared) (after rest.Object, err error) {
	body, err := terminal.EncodePlainly(d.settings)
	if err != nil {
		return nil, err
	}
	var shown any
	switch d.kind {
	case kindSubscription:
		return nil, management.CheckSubscription(d.name, body)
	case kindTopic:
		shown, err = management.ReadTopic(d.name, body)
	case kindPolicy:
		p, wrong := management.ReadPolicy(d.name, body)
		if wrong != nil {
			return nil, wrong
		}
		shown = management.DescribePolicy(p, 0)
	}
	if err != nil {
		return nil, err
	}
	return plainly(shown)
}

// nameFree rejects a new topic whose name differs from an existing one only in letter case.
func (a *applier) nameFree(d *declared) error {
	for k := range a.existing {
		if k.kind == d.kind {
			if err := nameFree(d.name, k.name); err != nil {
				return mistake{err}
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
	switch {
	case policy.name != "" && a.existing[policy] == nil && a.file.find(policy) == nil:
		err = fmt.Errorf("retryPolicy.policy: there is no policy %q, neither in the file nor on the server", policy.name)
		return nil, nil, mistake{err}
	case a.existing[topic] == nil && a.file.find(topic) == nil:
		return nil, nil, mistake{fmt.Errorf("there is no topic %q, neither in the file nor on the server", d.topic)}
	case a.existing[topic] == nil:
		return nil, nil, nil
	}
	after, err = a.dryRun(ctx, d, policy.name)
	if err != nil || shown == nil {
		return nil, nil, err
	}
	if policy.name != "" && a.existing[policy] == nil {
		after["retryPolicy"] = d.settings["retryPolicy"] // its limits are those of a policy that does not exist yet
	}
	after["endpointUrl"] = d.settings["endpointUrl"]
	given := secretHeaders(d.settings["deliveryAttributeMappings"])
	for name, properties := range secretHeaders(after["deliveryAttributeMappings"]) { // the server shows no value
		if own := given[name]; own != nil {
			properties["value"] = own["value"]
		}
	}
	before, err = a.revealed(ctx, d, shown)
	return before, after, err
}

// dryRun validates the settings on the server. Limits that only the policy in the file allows are validated when the
// event subscription is written.
func (a *applier) dryRun(ctx context.Context, d *declared, policy string) (after rest.Object, err error) {
	path := d.path() + "?dryRun=true"
	err = a.client.Call(ctx, http.MethodPut, path, d.settings, &after)
	if rest.IsStatus(err, http.StatusBadRequest) && a.unsettled[policy] {
		err = a.client.Call(ctx, http.MethodPut, path, without(d.settings, "retryPolicy"), &after)
	}
	return after, err
}

// revealed adds the secrets of an event subscription, so that another endpoint or header is seen.
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

// leftovers deletes what the server has and the file does not name: event subscriptions first, for they keep topics and
// policies from being deleted. The list of the Azure CLI names event subscriptions only, so only those of its topics
// are deleted.
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

// write makes the changes one after another and stops at the first error.
func (a *applier) write(ctx context.Context, changes []change) error {
	done, all := 0, pending(changes)
	for i := range changes {
		ch := &changes[i]
		if ch.mark == same {
			continue
		}
		err := terminal.Await(fmt.Sprintf("%s is written (%d of %d)", ch.title(), done+1, all),
			func() error { return a.writeOne(ctx, ch) })
		if rest.IsStatus(err, http.StatusPreconditionFailed) {
			err = errors.New("another client has changed it meanwhile")
		}
		if err != nil {
			return fmt.Errorf("%d of %s made; %s was rejected: %w\nlater changes were not begun; correct this and apply the "+
				"file again", done, terminal.Plural(all, "change"), ch.title(), err)
		}
		done++
		fmt.Fprintf(a.out, "%s %s\n", map[string]string{"+": "made", "~": "changed", "-": "deleted"}[ch.mark], ch.title())
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
