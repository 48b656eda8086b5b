package web

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/catalog/spec"
	"postrider/postgres"
)

// openPolicy is the form of a retry policy, or of a new one with the settings of another.
func (p *pages) openPolicy(ctx context.Context, c echo.Context) (*editor, error) {
	name := c.Param("name")
	from := name
	if name == "" {
		from = c.QueryParam("from")
	}
	if from == "" {
		return nil, postgres.ErrNotFound
	}
	e := &editor{
		table: spec.Policy, noun: "retry policy", name: name, address: apiPolicy, method: http.MethodPut, page: "policy-form",
		title: "Edit " + name, action: "/ui/policies/" + name + "/edit", back: "/ui/policies",
		trail: []link{{"/ui/policies", "Retry policies"}},
		saved: func(name string, _ *apiAnswer) (string, error) {
			return "/ui/policies?done=policy-saved&policy=" + name, nil
		},
	}
	if err := p.readStored(ctx, c, e, from); err != nil {
		return nil, err
	}
	if name == "" {
		e.title, e.action = "A copy of "+from, "/ui/policies/new?from="+from
		e.stored["source"] = textJSON("Copied from " + from + ".")
	}
	return e, nil
}
