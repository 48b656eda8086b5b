package web

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/query"
)

// attention is an event subscription that needs attention, and what to do.
type attention struct {
	query.Attention
	// Problem is its newest failure if it is failing now.
	Problem *query.Failing
	// State is its hold, "failing", "rate limited" or "late".
	State string
	Since *time.Time
	// Do is the button: a form if Post, otherwise a link.
	Do   string
	Href string
	Post bool
	// Operates reports that the link leads to an operation, which viewers must not start.
	Operates bool
}

// needsAttention has a row for each event subscription that fails now or whose deliveries wait, the largest backlog
// first.
func needsAttention(waiting []query.Attention, problems []query.Failing) []attention {
	rows, at := make([]attention, 0, len(waiting)), map[query.SubscriptionKey]int{}
	row := func(topic, subscription string) *attention {
		key := query.SubscriptionKey{Topic: topic, Subscription: subscription}
		i, exists := at[key]
		if !exists {
			i, at[key] = len(rows), len(rows)
			rows = append(rows, attention{Attention: query.Attention{Topic: topic, Subscription: subscription}})
		}
		return &rows[i]
	}
	for i := range waiting {
		row(waiting[i].Topic, waiting[i].Subscription).Attention = waiting[i]
	}
	for i := range problems { // the newest failure first
		p := &problems[i]
		r := row(p.Topic, p.Subscription)
		if r.Problem == nil {
			r.Problem = p
		}
		if r.Since == nil || p.Since.Before(*r.Since) {
			r.Since = &p.Since
		}
		r.Pending = max(r.Pending, int64(p.Waiting))
	}
	for i := range rows {
		rows[i].decide()
	}
	slices.SortStableFunc(rows, func(a, b attention) int { return cmp.Compare(b.Pending, a.Pending) })
	return rows
}

// decide sets the state and the next step.
func (r *attention) decide() {
	path := subscriptionPath(r.Topic, r.Subscription)
	of := "?" + url.Values{"topic": {r.Topic}, "subscription": {r.Subscription}}.Encode()
	if r.Hold != nil {
		r.State, r.Since, r.Do, r.Href = *r.Hold, r.HoldSince, "Open", path
		switch *r.Hold {
		case catalog.HoldProbation:
			r.Do, r.Href, r.Post = "Probe", path+"/probe", true
		case catalog.HoldPaused:
			r.Do, r.Href, r.Post = "Resume", path+"/resume", true
		}
		return
	}
	if p := r.Problem; p != nil {
		r.State, r.Do, r.Href = "failing", "Open problem", "/ui/problems/"+p.ProblemID.String()
		switch {
		case p.Waiting > 0:
			r.Do, r.Operates = "Retry …", true
			r.Href = "/ui/deliveries/retry" + of + "&lastOutcome=" + url.QueryEscape(p.Outcome)
		case p.OpenDeadLetters:
			r.Do, r.Operates = "Redeliver …", true
			r.Href = "/ui/dead-letters/redeliver" + of // with any outcome, as they are counted
		}
		return
	}
	r.State, r.Since, r.Do, r.Href = "late", r.OldestPendingSince, "Open", "/ui/deliveries"+of+"&state=pending"
	if r.Waiting > 0 {
		r.State, r.Href = "rate limited", path
	}
}
