package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/cli/config"
	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
	v1 "postrider/server/v1"
)

const maxDevFile = 16 << 20 // bytes, as for apply

var hostName = regexp.MustCompile(`^[0-9A-Za-z]+(-+[0-9A-Za-z]+)*(\.[0-9A-Za-z]+(-+[0-9A-Za-z]+)*)*\.?$`)

// readOptions checks the flags, and reads the files: PostgreSQL takes seconds to start.
func (d *dev) readOptions(stdin io.Reader) error {
	c := d.options
	printable := func(r rune) bool { return r > ' ' && r <= '~' }
	switch {
	case strings.ContainsFunc(c.AdminToken, func(r rune) bool { return !printable(r) }):
		return terminal.Usagef("--admin-token: must be printable ASCII without blanks")
	case c.TopicKey != "" && spec.KeyProblem(c.TopicKey, spec.DevKeyBytes) != "":
		return terminal.Usagef("--topic-key: %s", spec.KeyProblem(c.TopicKey, spec.DevKeyBytes))
	case c.AdminToken != "" && c.AdminToken == c.TopicKey:
		return terminal.Usagef("--admin-token is the topic key: use two secrets")
	}
	for _, name := range c.TLSName {
		if !hostName.MatchString(name) {
			return terminal.Usagef("--tls-name %q: must be a host name, such as postrider or events.test", name)
		}
	}
	for _, name := range c.File {
		text, err := terminal.ReadUpTo(stdin, name, maxDevFile)
		if err != nil {
			return err
		}
		file, err := config.ReadDeclared(name, text)
		if err != nil {
			return terminal.Usagef("%v", err)
		}
		d.files = append(d.files, file)
	}
	return nil
}

// applyFiles applies the files in their order.
func (d *dev) applyFiles(ctx context.Context) error {
	client, err := rest.ServerFlags{URL: d.ready.API, APIKey: d.ready.AdminToken}.Client()
	if err != nil {
		return err
	}
	for _, file := range d.files {
		for _, note := range file.Notes {
			fmt.Fprintln(d.stderr, "not supported:", terminal.PlainLines(note))
		}
		if err := file.Apply(ctx, client, d.ready.TopicKey, func(ch v1.ConfigurationChange) {
			d.row("Applied", terminal.OneLine(ch.Title()))
		}); err != nil {
			return err
		}
		for topic, declared := range file.Keys() {
			if err := d.setKeys(ctx, topic, catalog.AccessKeys(declared)); err != nil {
				return fmt.Errorf("set the access keys of topic %q: %w", topic, err)
			}
		}
	}
	return nil
}

// setKeys gives a topic of an earlier run the keys of this run.
func (d *dev) setKeys(ctx context.Context, topic string, declared catalog.AccessKeys) error {
	if topic == catalog.SystemTopic {
		return nil
	}
	topics := d.app.store.Topics
	kept, err := topics.Keys(ctx, topic)
	if err != nil {
		return err
	}
	keys := catalog.AccessKeys{Key1: cmp.Or(declared.Key1, kept.Key1), Key2: cmp.Or(declared.Key2, kept.Key2)}
	if keys == *kept {
		return nil
	}
	return topics.SetKeys(ctx, topic, keys)
}

// reset brings this dev back to the state that it had when it was ready.
func (d *dev) reset(ctx context.Context) error { return d.state.Reset(ctx, d.app.engine) }

// reset calls the running dev.
func (c *devCmd) reset(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	return client.Call(ctx, http.MethodDelete, "/v1/dev/state", nil, nil)
}
