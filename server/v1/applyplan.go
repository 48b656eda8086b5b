package v1

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/jsonscan"
	"postrider/internal/postgres"
	"postrider/policy"
	"postrider/server/api"
)

const (
	kindPolicy       = "policy"
	kindTopic        = "topic"
	kindSubscription = "subscription"

	changeNone = "none"
)

// kinds are in the order in which they are written: each can depend on those before it.
var kinds = []string{kindPolicy, kindTopic, kindSubscription}

// tables are the settings of each kind.
var tables = map[string][]spec.Setting{
	kindPolicy: spec.Policy, kindTopic: spec.Topic, kindSubscription: spec.Subscription,
}

// lower is what names have in common that differ only in letter case.
func (o ObjectName) lower() ObjectName { return ObjectName{o.Kind, o.Topic, strings.ToLower(o.Name)} }

// stored is an object of the catalog: one of these, and its version.
type stored struct {
	policy  *policy.Policy
	topic   *catalog.Topic
	sub     *catalog.Subscription
	version postgres.Version
}

// object is a declared object, or one to delete.
type object struct {
	ConfigurationChange
	at         string           // its path in the request
	err        error            // mistakes that it has by itself
	version    postgres.Version // of the stored object; 0 = there is none
	createOnly bool             // a stored object is not changed
	// settings are the settings of the stored object, nil for a new one, and the declared settings.
	settings func(context.Context) (before, after []byte, err error)
	write    func(context.Context, api.PutHeaders) error
}

// plan compares a configuration with the catalog.
type plan struct {
	m        *Handlers // knows the declared policies, too
	request  []byte
	objects  []*object // in the order in which they are written
	declared map[ObjectName]bool
	uses     map[string]bool // topics with a declared event subscription
	stored   map[ObjectName]stored
	names    map[ObjectName]string     // of stored and declared objects
	topics   map[string]*catalog.Topic // declared ones, as they will be
}

// etag is the version of the changes that have not been made.
func (p *plan) etag() string {
	hash := sha256.New()
	hash.Write(p.request)
	for _, o := range p.objects {
		if o.Change != changeNone && !o.Applied {
			fmt.Fprintf(hash, "\n%s %s %d", o.Change, o.Title(), o.version)
		}
	}
	return fmt.Sprintf(`"%x"`, hash.Sum(nil)[:16])
}

// plan compares a configuration with the catalog. Its error has the mistakes of all objects.
func (m *Handlers) plan(ctx context.Context, file *Configuration, prune string) (*plan, error) {
	knowing := *m
	knowing.declaredPolicies = map[string]*policy.Policy{}
	p := &plan{
		m: &knowing, declared: map[ObjectName]bool{}, uses: map[string]bool{}, stored: map[ObjectName]stored{},
		names: map[ObjectName]string{}, topics: map[string]*catalog.Topic{},
	}
	p.request = append(jsonscan.MustEncode(file), prune...)
	p.read(file)
	if err := p.load(ctx, prune == "all"); err != nil {
		return nil, err
	}
	var mistakes []api.ErrorDetail
	for _, o := range p.objects {
		err := p.compare(ctx, o)
		if err == nil {
			continue
		}
		rejected, ok := errors.AsType[*api.RejectionError](err)
		if !ok || rejected.Status != http.StatusBadRequest {
			return nil, err
		}
		details := rejected.Details
		if len(details) == 0 { // it is no object
			details = []api.ErrorDetail{{Code: rejected.Code, Message: rejected.Message}}
		}
		for _, d := range details {
			if d.Target = o.at; o.Name != "" {
				d.Message = o.Title() + ": " + d.Message
			}
			mistakes = append(mistakes, d)
		}
	}
	if len(mistakes) > 0 {
		r := api.Reject(http.StatusBadRequest, api.CodeInvalidRequest, "nothing was changed; fix these errors of the file")
		r.Details = mistakes
		return nil, r
	}
	if prune != "none" {
		p.prune(prune == "all")
	}
	return p, nil
}

// read reads the declared objects.
func (p *plan) read(file *Configuration) {
	for i, text := range file.Policies {
		var read Policy
		err := api.DecodeStrictly(text, &read)
		declared, wrong := read.settings(read.Name)
		o := p.add(ObjectName{kindPolicy, "", read.Name}, fmt.Sprintf("policies[%d]", i), cmp.Or(err, wrong))
		if o.Name != "" {
			p.m.declaredPolicies[o.Name] = declared // also with mistakes: its event subscriptions are checked
		}
		o.settings = func(context.Context) (before, after []byte, err error) {
			s := p.stored[o.ObjectName]
			switch {
			case s.policy == nil:
				return nil, text, nil
			case s.policy.BuiltIn:
				return nil, nil, api.Invalid("name", "is that of a built-in policy, which never changes: use another name")
			}
			return jsonscan.MustEncode(DescribePolicy(s.policy, 0)), jsonscan.MustEncode(DescribePolicy(declared, 0)), nil
		}
		o.write = func(ctx context.Context, when api.PutHeaders) error {
			_, err := p.m.PutPolicy(ctx, &putPolicyRequest{PolicyPath{o.Name}, when, read})
			return err
		}
	}
	for i, text := range file.Topics {
		p.readTopic(fmt.Sprintf("topics[%d]", i), text)
	}
	for i, text := range file.Subscriptions {
		p.readSubscription(fmt.Sprintf("subscriptions[%d]", i), text, "")
	}
	slices.SortStableFunc(p.objects, func(a, b *object) int {
		return slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind)
	})
}

func (p *plan) readTopic(at string, text json.RawMessage) {
	var read struct {
		Name string `json:"name"`
		TopicSpec
		Key1          *string           `json:"key1"`
		Key2          *string           `json:"key2"`
		CreateOnly    bool              `json:"createOnly"`
		Subscriptions []json.RawMessage `json:"subscriptions"`
	}
	err := api.DecodeStrictly(text, &read)
	s, wrong := read.TopicSpec.check(read.Name)
	keys, wrongKey := declaredKeys(read.Key1, read.Key2, p.m.LeastKeyBytes)
	o := p.add(ObjectName{kindTopic, "", read.Name}, at, cmp.Or(err, wrong, wrongKey))
	o.createOnly = read.CreateOnly
	if s.Kind == catalog.TopicNamespace && s.EventRetentionInDays == 0 {
		s.EventRetentionInDays = catalog.DefaultRetentionInDays
	}
	t := &catalog.Topic{
		Name: o.Name, Kind: s.Kind, InputSchema: s.InputSchema, InputSchemaMapping: s.InputSchemaMapping,
		EventRetentionInDays: s.EventRetentionInDays, DuplicateWindow: s.DuplicateWindow,
		Relay: s.Relay,
	}
	p.topics[o.Name] = t // also with mistakes: its event subscriptions are checked
	o.settings = func(context.Context) (before, after []byte, err error) {
		old := p.stored[o.ObjectName].topic
		if old == nil {
			return nil, text, nil // keys are no settings: they are not shown
		}
		if o.createOnly {
			p.topics[o.Name] = old
		}
		return jsonscan.MustEncode(topicView(old, nil)), jsonscan.MustEncode(topicView(t, nil)), nil
	}
	o.write = func(ctx context.Context, when api.PutHeaders) error {
		_, err := p.m.putTopic(ctx, &putTopicRequest{TopicPath{o.Name}, when, read.TopicSpec}, keys)
		return err
	}
	for i, text := range read.Subscriptions {
		p.readSubscription(fmt.Sprintf("%s.subscriptions[%d]", at, i), text, o.Name)
	}
}

// declaredKeys are the access keys of a new topic; nil if both are to be generated.
func declaredKeys(key1, key2 *string, least int) (*catalog.AccessKeys, error) {
	if key1 == nil && key2 == nil {
		return nil, nil
	}
	var found problems
	keys := catalog.AccessKeys{Key1: postgres.NewAccessKey(), Key2: postgres.NewAccessKey()}
	choose := func(name string, key, given *string) {
		if given == nil {
			return
		}
		if *key = *given; spec.KeyProblem(*key, least) != "" {
			found.Value(name, "%s", spec.KeyProblem(*key, least))
		}
	}
	choose("key1", &keys.Key1, key1)
	choose("key2", &keys.Key2, key2)
	return &keys, found.Err()
}

// readSubscription reads an event subscription. topic contains it, unless it is "".
func (p *plan) readSubscription(at string, text json.RawMessage, topic string) {
	var read struct {
		Topic string `json:"topic"`
		Name  string `json:"name"`
		catalog.SubscriptionSpec
	}
	err := api.DecodeStrictly(text, &read)
	switch {
	case err != nil:
	case topic != "" && read.Topic != "":
		err = api.Invalid("topic", "must be absent: the event subscription is within its topic")
	case topic == "" && read.Topic == "":
		err = api.Invalid("topic", "is required")
	}
	o := p.add(ObjectName{kindSubscription, cmp.Or(topic, read.Topic), read.Name}, at, err)
	p.uses[o.Topic] = true
	o.settings = func(ctx context.Context) (before, after []byte, err error) {
		t := cmp.Or(p.topics[o.Topic], p.stored[ObjectName{kindTopic, "", o.Topic}].topic)
		if t == nil {
			return nil, nil, api.Invalid("topic", "must exist: neither the file nor the server has it")
		}
		declared, err := p.m.checkSubscription(ctx, t, o.Name, read.SubscriptionSpec)
		old := p.stored[o.ObjectName].sub
		if err != nil || old == nil {
			return nil, withSecrets(text, &declared, &catalog.SubscriptionSpec{}), err
		}
		would, err := p.m.dryRun(ctx, t, o.Name, declared)
		if err != nil {
			return nil, nil, err
		}
		return withSecrets(jsonscan.MustEncode(p.m.subscriptionView(old)), &old.Stated, &old.Stated),
			withSecrets(jsonscan.MustEncode(would), &declared, &old.Stated), nil
	}
	o.write = func(ctx context.Context, when api.PutHeaders) error {
		r := &putSubscriptionRequest{PutHeaders: when, Body: read.SubscriptionSpec}
		r.Topic, r.Subscription = o.Topic, o.Name
		_, err := p.m.PutSubscription(ctx, r)
		return err
	}
}

// add adds an object.
func (p *plan) add(name ObjectName, at string, err error) *object {
	o := &object{at: at, err: err}
	o.ObjectName, o.Properties = name, []PropertyChange{}
	p.objects = append(p.objects, o)
	return o
}

// load reads the catalog: all policies and topics, and the event subscriptions of topics in use, or of all.
func (p *plan) load(ctx context.Context, all bool) error {
	if err := p.m.Parts.Cache.Reload(ctx); err != nil {
		return err
	}
	keep := func(o ObjectName, s stored) { p.stored[o], p.names[o.lower()] = s, o.Name }
	snapshot := p.m.Parts.Cache.Snapshot()
	for _, own := range snapshot.Policies() {
		keep(ObjectName{kindPolicy, "", own.Name}, stored{policy: own, version: snapshot.PolicyVersion(own.Name)})
	}
	topics, err := p.m.Parts.Topics.List(ctx, "", math.MaxInt32)
	if err != nil {
		return err
	}
	for _, t := range topics {
		keep(ObjectName{kindTopic, "", t.Name}, stored{topic: t, version: t.Version})
		if !all && !p.uses[t.Name] {
			continue
		}
		subs, err := p.m.Parts.Subscriptions.List(ctx, t.Name, "", math.MaxInt32)
		if err != nil && !errors.Is(err, postgres.ErrNotFound) { // deleted since the topics were listed
			return err
		}
		for _, s := range subs {
			keep(ObjectName{kindSubscription, t.Name, s.Name}, stored{sub: s, version: s.Version})
		}
	}
	return nil
}

// compare finds the change of an object. Its error can have mistakes of the object.
func (p *plan) compare(ctx context.Context, o *object) error {
	old, exists := p.stored[o.ObjectName]
	other, taken := p.names[o.lower()]
	switch {
	case o.err != nil:
		return o.err
	case o.Name == "":
		return api.Invalid("name", "is required")
	case p.declared[o.ObjectName]:
		return api.Invalid("name", "is duplicate")
	case taken && other != o.Name:
		return api.Invalid("name", "conflicts with %q: names must not differ only in letter case", other)
	}
	p.declared[o.ObjectName], p.names[o.lower()], o.version = true, o.Name, old.version
	before, after, err := o.settings(ctx)
	if err != nil {
		return err
	}
	lines := changedProperties(tables[o.Kind], before, after)
	switch {
	case !exists:
		o.Change, o.Properties = "create", lines
	case o.createOnly || len(lines) == 0:
		o.Change = changeNone
	default:
		o.Change, o.Properties = "update", lines
	}
	var fixed problems
	for _, line := range o.Properties {
		if exists && spec.Find(tables[o.Kind], line.Property).Fixed {
			fixed.Value(line.Property, "cannot be changed once the topic exists: %s → %s", line.Before, line.After)
		}
	}
	return fixed.Err()
}

// ownPrefix begins the names of postrider's own topics.
const ownPrefix = "postrider."

// prune adds the deletions of objects that the request does not name. Event subscriptions come first, because topics
// and policies with event subscriptions cannot be deleted.
func (p *plan) prune(all bool) {
	kept := len(p.objects)
	for name, s := range p.stored {
		own, sub := strings.HasPrefix(name.Topic+name.Name, ownPrefix), s.sub != nil
		switch {
		case p.declared[name], s.policy != nil && s.policy.BuiltIn, s.topic != nil && own, !sub && !all:
		case sub && own && !p.uses[name.Topic]: // without all, only those of topics in use were loaded
		default:
			o := p.add(name, "", nil)
			o.Change, o.version, o.write = "delete", s.version, func(ctx context.Context, when api.PutHeaders) error {
				return p.m.deleteObject(ctx, name, when.IfMatchHeader)
			}
		}
	}
	slices.SortFunc(p.objects[kept:], func(x, y *object) int {
		return cmp.Or(slices.Index(kinds, y.Kind)-slices.Index(kinds, x.Kind), cmp.Compare(x.Topic, y.Topic),
			cmp.Compare(x.Name, y.Name))
	})
}

func (m *Handlers) deleteObject(ctx context.Context, o ObjectName, when api.IfMatchHeader) (err error) {
	switch o.Kind {
	case kindPolicy:
		_, err = m.DeletePolicy(ctx, &deletePolicyRequest{PolicyPath{o.Name}, when})
	case kindTopic:
		_, err = m.DeleteTopic(ctx, &deleteTopicRequest{TopicPath{o.Name}, when})
	default:
		_, err = m.DeleteSubscription(ctx,
			&deleteSubscriptionRequest{SubscriptionPath{TopicPath{o.Topic}, o.Name}, when})
	}
	return err
}
