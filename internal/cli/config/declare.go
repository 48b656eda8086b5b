package config

import (
	"context"
	"fmt"
	"io"

	"postrider/internal/cli/rest"
	v1 "postrider/server/v1"
)

// Declared is a file of apply that was read.
type Declared struct {
	// Notes are the parts of the file that postrider does not have.
	Notes []string

	name string
	file *applyFile
}

// ReadDeclared reads a file as apply does.
func ReadDeclared(name string, text []byte) (*Declared, error) {
	file, err := readApply(text, applyFlags{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Declared{Notes: file.notes, name: name, file: file}, nil
}

// TopicKeys are the access keys of a topic; "" is one that the file does not declare.
type TopicKeys struct{ Key1, Key2 string }

// Keys returns the access keys that the file declares, by topic. After Apply, all topics have a first key. Apply does
// not change the keys of topics that exist.
func (d *Declared) Keys() map[string]TopicKeys {
	keys := map[string]TopicKeys{}
	for _, t := range rest.Objects(d.file.objects, "topics") {
		keys[textOf(t["name"])] = TopicKeys{Key1: textOf(t["key1"]), Key2: textOf(t["key2"])}
	}
	return keys
}

// Apply makes the changes of the file and calls made for each. key is the access key of new topics that have none in
// it.
func (d *Declared) Apply(
	ctx context.Context, client *rest.Client, key string, made func(v1.ConfigurationChange),
) error {
	for _, t := range rest.Objects(d.file.objects, "topics") {
		if t["key1"] == nil {
			t["key1"] = key
		}
	}
	plan, todo, err := d.file.compare(ctx, io.Discard, client, "none")
	if err == nil {
		err = d.file.apply(ctx, io.Discard, client, "none", plan.ETag, todo, made)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return nil
}
