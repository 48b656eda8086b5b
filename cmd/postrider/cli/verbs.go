package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// listVerb lists the newest objects at the path in the verb's tag. F has the flags that filter them.
type listVerb[F any] struct {
	rest.Flags
	Limit  int `help:"How many to list at most: 1 to 10000." default:"50" range:"1..10000" placeholder:"N"`
	Filter F   `embed:""`
}

// Run executes the verb.
func (c *listVerb[F]) Run(ctx context.Context, k *kong.Context) error {
	filter, err := rest.Filter(&c.Filter)
	if err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	at := k.Selected().Tag.Get("path")
	list, err := client.First(ctx, at, filter, c.Limit)
	if err != nil {
		return err
	}
	return c.Print(list, func(w io.Writer) { rest.PrintColumns(w, resources[at].columns, list) })
}

// showVerb shows the object at the path in the verb's tag. A has the argument that names it.
type showVerb[A any] struct {
	rest.Flags
	Argument A `embed:""`
}

// Run executes the verb. JSON is the object with the lists that belong to it.
func (c *showVerb[A]) Run(ctx context.Context, k *kong.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	at, kind := argumentPath(k), resources[path.Dir(k.Selected().Tag.Get("path"))]
	var o rest.Object
	if err := client.Call(ctx, http.MethodGet, at, nil, &o); err != nil {
		return err
	}
	for _, part := range kind.parts {
		if part.path == "" {
			continue
		}
		if o[part.member], err = client.All(ctx, at+part.path); err != nil {
			return err
		}
	}
	return c.Print(o, func(w io.Writer) { kind.print(w, o) })
}

// actVerb posts to the path in the verb's tag and prints the tag done, which may name members of the response.
type actVerb[A any] struct {
	rest.Flags
	Argument A `embed:""`
}

// Run executes the verb.
func (c *actVerb[A]) Run(ctx context.Context, k *kong.Context) error {
	var now rest.Object
	if err := c.Call(ctx, http.MethodPost, argumentPath(k), nil, &now); err != nil {
		return err
	}
	done := expand(k.Selected().Tag.Get("done"), func(member string) string { return rest.TextAt(now, member) })
	return c.Print(now, func(w io.Writer) { fmt.Fprintln(w, done) })
}

// argumentPath is the path in the verb's tag, with the arguments of the command line.
func argumentPath(k *kong.Context) string {
	values := map[string]string{}
	for _, argument := range k.Selected().Positional {
		values[argument.Name] = fmt.Sprint(argument.Target.Interface())
	}
	return expand(k.Selected().Tag.Get("path"), func(name string) string { return url.PathEscape(values[name]) })
}

var nameInBraces = regexp.MustCompile(`\{[\w-]+\}`)

// expand replaces each {name} in a text.
func expand(text string, value func(name string) string) string {
	return nameInBraces.ReplaceAllStringFunc(text, func(name string) string { return value(name[1 : len(name)-1]) })
}

// deadLetterID, operationID and systemID are ids that are checked before a request is sent.
type (
	deadLetterID string
	operationID  string
	systemID     string
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *deadLetterID) UnmarshalText(text []byte) (err error) {
	*id, err = readID[deadLetterID](text, "id of a dead letter: it is a UUID")
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *operationID) UnmarshalText(text []byte) (err error) {
	*id, err = readID[operationID](text, "id of an operation: it is a UUID")
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *systemID) UnmarshalText(text []byte) (err error) {
	*id, err = readID[systemID](text, "system id: it is a UUID, and not the publisher's id; try event list --event-id")
	return err
}

func readID[T ~string](text []byte, what string) (T, error) {
	id, err := uuid.ParseBytes(text)
	if err != nil {
		return "", terminal.Usagef("%q is no %s", text, what)
	}
	return T(id.String()), nil
}
