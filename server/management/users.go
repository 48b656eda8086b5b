package management

import (
	"context"

	"postrider/access"
	"postrider/server/api"
)

// ListUsers responds to GET /v1/users.
func (m *Handlers) ListUsers(ctx context.Context, r *api.PageParams) (*api.List[access.User], error) {
	return api.ListByName(ctx, r, "/v1/users", m.Parts.Access.Users, func(u access.User) string { return u.Name })
}

// UserPath names a user.
type UserPath struct {
	Name string `path:"user" example:"anna"`
}

// PutUserRequest is the request PUT /v1/users/{user}.
type PutUserRequest struct {
	UserPath
	api.PutHeaders
	Body access.UserSpec
}

// PutUser responds to PUT /v1/users/{user}.
func (m *Handlers) PutUser(ctx context.Context, r *PutUserRequest) (*api.Put[access.User], error) {
	if r.Body.Role == "" {
		return nil, api.Invalid("role", "is required: viewer, operator or admin")
	}
	created, err := m.Parts.Access.PutUser(ctx, r.Name, r.Body, r.Conditions()...)
	if err != nil {
		return nil, r.Rejected(err, "user", r.Name)
	}
	u, err := m.Parts.Access.User(ctx, r.Name)
	return &api.Put[access.User]{Body: u, Created: created}, err
}

// GetUser responds to GET /v1/users/{user}.
func (m *Handlers) GetUser(ctx context.Context, r *UserPath) (*access.User, error) {
	return m.Parts.Access.User(ctx, r.Name)
}

// DeleteUserRequest is the request DELETE /v1/users/{user}.
type DeleteUserRequest struct {
	UserPath
	api.IfMatchHeader
}

// DeleteUser responds to DELETE /v1/users/{user}.
func (m *Handlers) DeleteUser(ctx context.Context, r *DeleteUserRequest) (*api.NoContent, error) {
	err := m.Parts.Access.DeleteUser(ctx, r.Name, r.Conditions()...)
	return &api.NoContent{}, r.Rejected(err, "user", r.Name)
}
