package web

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/catalog/spec"
	"postrider/policy"
	"postrider/postgres"
	"postrider/web/site"
)

// openPolicy is the form of a retry policy, or of a new one with the settings of another.
func (p *pages) openPolicy(ctx context.Context, c echo.Context) (*editor, error) {
	const list = "/ui/policies"
	name, from := c.Param("name"), c.QueryParam("from")
	if name != "" {
		from = name
	}
	if from == "" {
		return nil, postgres.ErrNotFound
	}
	e := &editor{
		table: spec.Policy, noun: "retry policy", name: name, address: apiPolicy, method: http.MethodPut,
		trail: []site.Link{{Href: list, Text: "Retry policies"}}, removed: list + "?done=policy-deleted",
		saved: func(name string, _ *apiAnswer) (string, error) {
			return list + "?done=policy-saved&policy=" + name, nil
		},
		removal: func(context.Context) (forbidden, canceled string, err error) {
			if _, builtIn := policy.Builtin(name); builtIn {
				forbidden = "It is built in and never changes."
			}
			return forbidden, "", nil
		},
	}
	if err := p.readStored(ctx, c, e, from); err != nil {
		return nil, err
	}
	if name == "" {
		e.stored["source"] = textJSON("Copied from " + from + ".")
	}
	return e, nil
}
