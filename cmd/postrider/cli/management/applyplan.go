package management

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/server/management"
)

// same marks what is already as the file says; + - ~ are as in a diffLine.
const same = "="

// change is what becomes of one thing.
type change struct {
	wanted
	mark  string
	lines []diffLine
	etag  string // the version that was compared; "" of what there is not
}

// applier compares a file with a server, and makes the server what the file says.
type applier struct {
	client *rest.Client
	file   *applyFile
	prune  bool
	out    io.Writer // told of each change that was made

	policies  map[string]rest.Object // the server's, by name
	topics    map[string]rest.Object
	subs      map[string][]rest.Object // of each topic that the server has and the file, or a prune, is about
	unsettled map[string]bool          // policies that the file makes or changes
}

// misjudged are the mistakes of a file, each with what it is about. Nothing was changed.
type misjudged []string

// Error is every mistake in a line of its own.
func (m misjudged) Error() string {
	return fmt.Sprintf("nothing was changed, for there are mistakes:\n%s", strings.Join(m, "\n"))
}

func (m *misjudged) add(w *wanted, err error) {
	text := strings.ReplaceAll(err.Error(), "\n", "\n    ")
	*m = append(*m, fmt.Sprintf("  %s: %s", w.title(), text))
}

// plan judges everything and says what would change, in the order in which it is to be done.
func (a *applier) plan(ctx context.Context) ([]change, error) {
	if err := a.look(ctx); err != nil {
		return nil, err
	}
	var changes []change
	var wrong misjudged
	line, all := terminal.NewProgressLine(), len(a.file.wanted)
	defer line.End()
	for i := range a.file.wanted {
		w := &a.file.wanted[i]
		line.Show(func() string { return fmt.Sprintf("%sjudged %d of %d", terminal.Bar(i, all), i, all) })
		ch, err := a.judge(ctx, w)
		var broken *brokenError
		switch {
		case errors.As(err, &broken):
			return nil, broken.cause
		case err != nil:
			wrong.add(w, err)
		default:
			changes = append(changes, ch)
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	if a.prune {
		changes = append(changes, a.leftovers()...)
	}
	return changes, nil
}

// brokenError: the server could not be asked. It is no mistake of the file's.
type brokenError struct{ cause error }

// Error is the text of the cause.
func (e *brokenError) Error() string { return e.cause.Error() }

// look reads what there is.
func (a *applier) look(ctx context.Context) error {
	a.policies, a.topics, a.subs, a.unsettled = map[string]rest.Object{}, map[string]rest.Object{},
		map[string][]rest.Object{}, map[string]bool{}
	for _, list := range []struct {
		path string
		into map[string]rest.Object
	}{{"/v1/policies", a.policies}, {"/v1/topics", a.topics}} {
		found, err := a.client.All(ctx, list.path)
		if err != nil {
			return err
		}
		for _, o := range found {
			list.into[textOf(o["name"])] = o
		}
	}
	for name := range a.topics {
		if !a.prune && !slices.ContainsFunc(a.file.wanted, func(w wanted) bool { return w.topic == name }) {
			continue
		}
		found, err := a.client.All(ctx, rest.TopicURL(name)+"/subscriptions")
		var no *rest.Error
		switch {
		case errors.As(err, &no) && no.Status == http.StatusNotFound: // deleted since the topics were listed
			delete(a.topics, name)
		case err != nil:
			return err
		default:
			a.subs[name] = found
		}
	}
	return nil
}

func (a *applier) judge(ctx context.Context, w *wanted) (change, error) {
	switch w.kind {
	case kindPolicy:
		return a.judgePolicy(w)
	case kindTopic:
		return a.judgeTopic(w)
	}
	return a.judgeSubscription(ctx, w)
}

// compared is the change from before, which is nil where there is nothing, to after.
func compared(w *wanted, before, after rest.Object, etag any) change {
	ch := change{wanted: *w, mark: "~", lines: diff(before, after), etag: textOf(etag)}
	switch {
	case before == nil:
		ch.mark = "+"
	case len(ch.lines) == 0:
		ch.mark = same
	}
	return ch
}

func (a *applier) judgePolicy(w *wanted) (change, error) {
	body, err := terminal.EncodePlainly(w.settings)
	if err != nil {
		return change{}, err
	}
	read, err := management.ReadPolicy(w.name, body)
	if err != nil {
		return change{}, err
	}
	own := []string{"name", "builtIn", "isDefault", "etag"}
	after, err := plainly(management.DescribePolicy(read, 0))
	if err != nil {
		return change{}, err
	}
	before := a.policies[w.name]
	switch {
	case before == nil:
		a.unsettled[w.name] = true
		return compared(w, nil, w.settings, nil), nil // of something new, what is stated is enough to see
	case before["builtIn"] == true:
		return change{}, builtInError(w.name)
	}
	ch := compared(w, without(before, own...), without(after, own...), before["etag"])
	a.unsettled[w.name] = ch.mark != same
	return ch, nil
}

func (a *applier) judgeTopic(w *wanted) (change, error) {
	body, err := terminal.EncodePlainly(w.settings)
	if err != nil {
		return change{}, err
	}
	read, err := management.ReadTopic(w.name, body)
	if err != nil {
		return change{}, err
	}
	before := a.topics[w.name]
	if before == nil {
		for other := range a.topics {
			if err := nameFree(w.name, other); err != nil {
				return change{}, err
			}
		}
		return compared(w, nil, w.settings, nil), nil
	}
	if w.ifMissing {
		return change{wanted: *w, mark: same}, nil
	}
	after, err := plainly(read)
	if err != nil {
		return change{}, err
	}
	own := []string{"name", "etag", "endpoint", "createdAt", "updatedAt"}
	ch := compared(w, without(before, own...), without(after, own...), before["etag"])
	for _, line := range ch.lines {
		if root, _, _ := strings.Cut(line.property, "."); root == "kind" || root == "inputSchema" ||
			root == "inputSchemaMapping" {
			return change{}, fmt.Errorf("%s cannot be changed once the topic is there", line)
		}
	}
	return ch, nil
}

func (a *applier) subscription(topic, name string) rest.Object {
	i := slices.IndexFunc(a.subs[topic], func(o rest.Object) bool { return o["name"] == name })
	if i < 0 {
		return nil
	}
	return a.subs[topic][i]
}

func (a *applier) judgeSubscription(ctx context.Context, w *wanted) (change, error) {
	body, err := terminal.EncodePlainly(w.settings)
	if err != nil {
		return change{}, err
	}
	if err := management.CheckSubscription(w.name, body); err != nil {
		return change{}, err
	}
	before := a.subscription(w.topic, w.name)
	etag := any(nil)
	if before != nil {
		etag = before["etag"]
		if before, err = a.stored(ctx, w, before); err != nil {
			return change{}, &brokenError{err}
		}
	}
	after, err := a.afterwards(ctx, w, before)
	if err != nil {
		return change{}, err
	}
	hideSecrets(before, after)
	return compared(w, before, after, etag), nil
}

// settingsOf leaves out what nobody sets.
func settingsOf(shown rest.Object) rest.Object {
	s := without(shown, "topic", "name", "endpointBaseUrl", "etag", "validation", "provisioningState", "hold", "createdAt",
		"updatedAt")
	if signing, ok := s["signing"].(rest.Object); ok {
		s["signing"] = present(signing, "enabled")
	}
	return s
}

// stored are an event subscription's settings with its secrets, so that another endpoint or secret is seen.
func (a *applier) stored(ctx context.Context, w *wanted, shown rest.Object) (rest.Object, error) {
	path := rest.SubscriptionURL(w.topic, w.name)
	s := settingsOf(shown)
	var full struct{ EndpointURL string }
	if err := a.client.Call(ctx, http.MethodPost, path+"/getFullUrl", nil, &full); err != nil {
		return nil, err
	}
	s["endpointUrl"] = full.EndpointURL
	if len(secretHeaders(s)) == 0 {
		return s, nil
	}
	var headers struct{ Value []any }
	if err := a.client.Call(ctx, http.MethodPost, path+"/getDeliveryAttributes", nil, &headers); err != nil {
		return nil, err
	}
	s["deliveryAttributeMappings"] = headers.Value
	return s, nil
}

// afterwards are the settings that would be in force. The server says, unless topic or policy are still to be made:
// then those that are stated.
func (a *applier) afterwards(ctx context.Context, w *wanted, before rest.Object) (rest.Object, error) {
	stated, err := plainly(w.settings)
	if err != nil {
		return nil, err
	}
	policy := textOf(rest.ValueAt(stated, "retryPolicy.policy"))
	switch {
	case policy != "" && a.policies[policy] == nil && a.file.find(kindPolicy, "", policy) == nil:
		return nil, fmt.Errorf("retryPolicy.policy: there is no policy %q, neither in the file nor on the server", policy)
	case a.topics[w.topic] == nil && a.file.find(kindTopic, "", w.topic) == nil:
		return nil, fmt.Errorf("there is no topic %q, neither in the file nor on the server", w.topic)
	case a.topics[w.topic] == nil:
		return stated, nil
	}
	would, err := a.whatIf(ctx, w, stated, policy)
	if err != nil {
		return nil, err
	}
	if before == nil {
		return stated, nil // of something new, what is stated is enough to see
	}
	after := settingsOf(would)
	after["endpointUrl"] = stated["endpointUrl"]
	if a.policies[policy] == nil && policy != "" {
		after["retryPolicy"] = stated["retryPolicy"] // with the limits of a policy that is not there yet
	}
	keepSecrets(after, stated)
	return after, nil
}

// whatIf has the server judge. Limits that only the policy as the file has it allows are judged when they are written.
func (a *applier) whatIf(
	ctx context.Context, w *wanted, stated rest.Object, policy string,
) (would rest.Object, err error) {
	path := rest.SubscriptionURL(w.topic, w.name) + "?" + url.Values{"dryRun": {"true"}}.Encode()
	err = a.client.Call(ctx, http.MethodPut, path, stated, &would)
	if rest.IsStatus(err, http.StatusBadRequest) && a.unsettled[policy] {
		err = a.client.Call(ctx, http.MethodPut, path, without(stated, "retryPolicy"), &would)
	}
	if err != nil && !rest.IsStatus(err, http.StatusBadRequest) && !rest.IsStatus(err, http.StatusConflict) {
		err = &brokenError{err}
	}
	return would, err
}

// keepSecrets puts the stated values of secret headers where the server shows none.
func keepSecrets(after, stated rest.Object) {
	values := secretHeaders(stated)
	for name, properties := range secretHeaders(after) {
		if own := values[name]; own != nil {
			properties["value"] = own["value"]
		}
	}
}
