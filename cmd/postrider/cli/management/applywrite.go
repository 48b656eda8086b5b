package management

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// ownPrefix begins the names of topics that are postrider's own.
const ownPrefix = "postrider."

// leftovers are what the server has and the file does not name: event subscriptions first, for they keep topics and
// policies from being deleted. Of the Azure CLI's list, which names nothing else, event subscriptions of its topics
// alone.
func (a *applier) leftovers() (gone []change) {
	leave := func(kind, topic, name string, o rest.Object) {
		if a.file.find(kind, topic, name) == nil {
			gone = append(gone, change{wanted: wanted{kind: kind, topic: topic, name: name}, mark: "-", etag: textOf(o["etag"])})
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(a.subs)) {
		if own := strings.HasPrefix(topic, ownPrefix); (own || a.file.azure) && !a.names(topic) {
			continue
		}
		for _, o := range a.subs[topic] {
			leave(kindSubscription, topic, textOf(o["name"]), o)
		}
	}
	if a.file.azure {
		return gone
	}
	for _, name := range slices.Sorted(maps.Keys(a.topics)) {
		if !strings.HasPrefix(name, ownPrefix) {
			leave(kindTopic, "", name, a.topics[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.policies)) {
		if a.policies[name]["builtIn"] != true {
			leave(kindPolicy, "", name, a.policies[name])
		}
	}
	return gone
}

// names reports whether the file has an event subscription of this topic.
func (a *applier) names(topic string) bool {
	return slices.ContainsFunc(a.file.wanted, func(w wanted) bool { return w.topic == topic })
}

// write makes the changes one after another and stops at the first that is refused.
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
			err = fmt.Errorf("somebody else has changed it meanwhile")
		}
		if err != nil {
			return fmt.Errorf("%d of %s made; %s was refused: %w\nwhat comes after it was not begun; once that is mended, "+
				"apply the file again", done, terminal.Plural(all, "change"), ch.title(), err)
		}
		done++
		fmt.Fprintf(a.out, "%s %s\n", map[string]string{"+": "made", "~": "changed", "-": "deleted"}[ch.mark], ch.title())
	}
	return nil
}

func (a *applier) writeOne(ctx context.Context, ch *change) error {
	path := map[string]string{
		kindPolicy: "/v1/policies/" + url.PathEscape(ch.name), kindTopic: rest.TopicURL(ch.name),
		kindSubscription: rest.SubscriptionURL(ch.topic, ch.name),
	}[ch.kind]
	var headers []string
	switch {
	case ch.etag != "":
		headers = []string{"If-Match", ch.etag}
	case ch.mark == "+":
		headers = []string{"If-None-Match", "*"}
	}
	if ch.mark == "-" {
		return a.client.Call(ctx, http.MethodDelete, path, nil, nil, headers...)
	}
	return a.client.Call(ctx, http.MethodPut, path, ch.settings, nil, headers...)
}
