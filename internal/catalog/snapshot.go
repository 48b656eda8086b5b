package catalog

import (
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"time"

	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/postgres"
	"postrider/policy"
)

// Snapshot is the configuration that publishing and delivering need, in one version. It never changes: a reload makes
// a new one.
type Snapshot struct {
	Version int64
	// ServerID is what deliveries carry to mark this database as their origin.
	ServerID string
	// server is when PostgreSQL was started. A restarted or another server may lack the last changes.
	server time.Time

	topics      map[string]*Topic
	subsByTopic map[int64][]*Subscription
	// filters are those of subsByTopic, in the same order, for topics with advanced filters.
	filters map[int64]*filter.Set
	subs    map[int64]*Subscription
	// expiring are the topics with an event subscription that expires; now is the database's time.
	expiring map[int64]bool
	now      func() time.Time
	// rules are the resolved settings of each of subs.
	rules          map[int64]policy.Rules
	rates          map[int64]Rate
	timeScale      int // see Cache
	policies       map[string]*policy.Policy
	policyVersions map[string]postgres.Version
	policyList     []*policy.Policy
	policiesSeen   int64
	replaced       chan struct{}
}

func emptySnapshot() *Snapshot {
	return &Snapshot{
		replaced: make(chan struct{}),
		topics:   map[string]*Topic{}, subsByTopic: map[int64][]*Subscription{}, filters: map[int64]*filter.Set{},
		subs: map[int64]*Subscription{}, policies: map[string]*policy.Policy{}, expiring: map[int64]bool{},
		rules: map[int64]policy.Rules{},
	}
}

// Replaced is closed when the Cache, whose Snapshot this was, has a newer one.
func (c *Snapshot) Replaced() <-chan struct{} { return c.replaced }

// Topic finds a topic by name.
func (c *Snapshot) Topic(name string) (*Topic, bool) {
	t, ok := c.topics[name]
	return t, ok
}

// Topics returns all topics, in no order. They must not be changed.
func (c *Snapshot) Topics() iter.Seq[*Topic] { return maps.Values(c.topics) }

// Subscription finds an event subscription by its id.
func (c *Snapshot) Subscription(id int64) (*Subscription, bool) {
	s, ok := c.subs[id]
	return s, ok
}

// SubscriptionNamed finds an event subscription of a topic by its name.
func (c *Snapshot) SubscriptionNamed(topicID int64, name string) (*Subscription, bool) {
	for _, s := range c.subsByTopic[topicID] {
		if s.Name == name {
			return s, true
		}
	}
	return nil, false
}

// Subscriptions returns all event subscriptions, in no order. They must not be changed.
func (c *Snapshot) Subscriptions() iter.Seq[*Subscription] { return maps.Values(c.subs) }

// Policy finds a retry policy by name.
func (c *Snapshot) Policy(name string) (*policy.Policy, bool) {
	p, ok := c.policies[name]
	return p, ok
}

// PolicyVersion is the version of a retry policy, for Condition.Versions; 0 if there is none of this name.
func (c *Snapshot) PolicyVersion(name string) postgres.Version { return c.policyVersions[name] }

// ProbationKeys identify the deliveries that share a probation under the event subscription's policy: a key for each of
// its policy.Probation.Scopes, in that order. There are none for pull delivery.
func (c *Snapshot) ProbationKeys(sub *Subscription) (keys [][]byte) {
	p, ok := c.policies[sub.RetryPolicy.Policy]
	if !ok || sub.Pulled() {
		return nil
	}
	for _, scope := range p.Probation.Scopes() {
		if scope == policy.ProbationEndpoint {
			keys = append(keys, sub.EndpointHash)
		} else {
			keys = append(keys, binary.BigEndian.AppendUint64(nil, uint64(sub.ID)))
		}
	}
	return keys
}

// Rules are the resolved settings of an event subscription's deliveries; false without it or its retry policy.
func (c *Snapshot) Rules(subscription int64) (policy.Rules, bool) {
	r, ok := c.rules[subscription]
	return r, ok
}

// Policies lists all retry policies: the built-in ones by age, then own ones by name.
func (c *Snapshot) Policies() []*policy.Policy { return c.policyList }

// HasAdvancedFilters reports whether the event subscriptions of a topic may need an event's body to be matched.
func (c *Snapshot) HasAdvancedFilters(topicID int64) bool { return c.filters[topicID] != nil }

// Matching lists the event subscriptions of a topic whose filter matches the event and that have not expired.
func (c *Snapshot) Matching(topicID int64, e *event.Event) []*Subscription {
	if c.expiring[topicID] {
		now := c.now()
		return slices.DeleteFunc(c.matching(topicID, e), func(s *Subscription) bool { return s.Expired(now) })
	}
	return c.matching(topicID, e)
}

func (c *Snapshot) matching(topicID int64, e *event.Event) []*Subscription {
	subs := c.subsByTopic[topicID]
	if filters := c.filters[topicID]; filters != nil {
		view := EventView(subs[0].Topic, e)
		var few [32]int
		positions := filters.Matching(few[:0], &view)
		if len(positions) == 0 {
			return nil
		}
		matched := make([]*Subscription, len(positions))
		for i, position := range positions {
			matched[i] = subs[position]
		}
		return matched
	}
	view := filter.EventView{Type: e.Type, Subject: e.Subject}
	var matched []*Subscription
	for _, s := range subs {
		if s.Filter.Matches(&view) {
			matched = append(matched, s)
		}
	}
	return matched
}

// EventView is what filters see of an event of a topic.
func EventView(topic string, e *event.Event) filter.EventView {
	view := filter.EventView{
		CloudEvent: e.Schema == event.CloudEvents, Custom: e.Schema == event.Custom, Type: e.Type, ID: e.ID,
		Subject: e.Subject, Source: e.Source, Topic: e.TopicOf(topic), DataVersion: e.DataVersion,
		Body: e.Body,
	}
	if view.Custom {
		view.EventTime = e.Time.UTC().Format(time.RFC3339Nano)
	}
	return view
}

// apply stores the changes, and returns the event subscriptions whose rules may have changed.
func (c *Snapshot) apply(topics []*Topic, subs []*Subscription) (changed []int64) {
	for _, t := range topics {
		subs = append(c.retained(t), subs...)
		// A deleted topic's name may already belong to a newer one.
		if known := c.topics[t.Name]; t.DeletedAt == nil {
			c.topics[t.Name] = t
		} else if known != nil && known.ID == t.ID {
			delete(c.topics, t.Name)
		}
	}
	affected := map[int64]bool{}
	for _, s := range subs {
		c.applySubscription(s)
		affected[s.TopicID] = true
		changed = append(changed, s.ID)
	}
	for topicID := range affected {
		c.readyFilters(topicID)
		delete(c.expiring, topicID)
		if slices.ContainsFunc(c.subsByTopic[topicID], func(s *Subscription) bool { return s.ExpirationTimeUTC != nil }) {
			c.expiring[topicID] = true
		}
	}
	return changed
}

// retained are copies of a topic's event subscriptions with its changed retention: publishes read the originals.
func (c *Snapshot) retained(t *Topic) (subs []*Subscription) {
	for _, s := range c.subsByTopic[t.ID] {
		if s.EventRetentionInDays != t.EventRetentionInDays {
			changed := *s
			changed.EventRetentionInDays = t.EventRetentionInDays
			subs = append(subs, &changed)
		}
	}
	return subs
}

// readyFilters prepares a topic's filters, once per reload, if there are advanced filters.
func (c *Snapshot) readyFilters(topicID int64) {
	delete(c.filters, topicID)
	subs := c.subsByTopic[topicID]
	if !slices.ContainsFunc(subs, func(s *Subscription) bool { return s.Filter.Advanced() }) {
		return
	}
	filters := make([]*filter.Filter, len(subs))
	for i, s := range subs {
		filters[i] = &s.Filter
	}
	c.filters[topicID] = filter.NewSet(filters)
}

// applySubscription creates a new list for its topic: publishes read the old one.
func (c *Snapshot) applySubscription(s *Subscription) {
	delete(c.subs, s.ID)
	list := make([]*Subscription, 0, len(c.subsByTopic[s.TopicID])+1)
	for _, other := range c.subsByTopic[s.TopicID] {
		if other.ID != s.ID {
			list = append(list, other)
		}
	}
	if s.DeletedAt == nil {
		c.subs[s.ID] = s
		list = append(list, s)
	}
	c.subsByTopic[s.TopicID] = list
}
