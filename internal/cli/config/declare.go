package config

import (
	"context"
	"fmt"
	"net/http"

	"postrider/internal/cli/rest"
	v1 "postrider/server/v1"
)

// Declared is a file of apply that was read.
type Declared struct {
	// Notes are the parts of the file that postrider does not have.
	Notes []string

	name    string
	objects rest.Object
}

// ReadDeclared reads a file as apply does.
func ReadDeclared(name string, text []byte) (*Declared, error) {
	file, err := readApply(text, applyFlags{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Declared{Notes: file.notes, name: name, objects: file.objects}, nil
}

// TopicKeys are the access keys of a topic; "" is one that the file does not declare.
type TopicKeys struct{ Key1, Key2 string }

// Keys returns the access keys that the file declares, by topic. After Apply, all topics have a first key. Apply does
// not change the keys of topics that exist.
func (d *Declared) Keys() map[string]TopicKeys {
	keys := map[string]TopicKeys{}
	for _, t := range rest.Objects(d.objects, "topics") {
		keys[textOf(t["name"])] = TopicKeys{Key1: textOf(t["key1"]), Key2: textOf(t["key2"])}
	}
	return keys
}

// Apply makes the changes of the file, and returns them. key is the access key of new topics that have none in it.
func (d *Declared) Apply(ctx context.Context, client *rest.Client, key string) ([]v1.ConfigurationChange, error) {
	for _, t := range rest.Objects(d.objects, "topics") {
		if t["key1"] == nil {
			t["key1"] = key
		}
	}
	var changes []v1.ConfigurationChange
	for { // a request ends after some time
		var plan v1.ConfigurationChanges
		if err := client.Call(ctx, http.MethodPost, "/v1/apply", d.objects, &plan); err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		applied, left := 0, 0
		for _, ch := range plan.Changes {
			switch {
			case ch.Applied:
				applied++
				changes = append(changes, ch)
			case ch.Change != "none":
				if left++; plan.Error != nil {
					return nil, fmt.Errorf("%s: %s was rejected: %w", d.name, ch.Title(), rejection(plan.Error))
				}
			}
		}
		if left == 0 {
			return changes, nil
		}
		if applied == 0 {
			return nil, fmt.Errorf("%s: the server has changed nothing", d.name)
		}
	}
}
