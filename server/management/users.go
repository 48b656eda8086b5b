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
	when, err := r.Conditions()
	if err != nil {
		return nil, err
	}
	made, err := m.Parts.Access.PutUser(ctx, r.Name, r.Body, when...)
	if err != nil {
		return nil, r.Rejected(err, "user", r.Name)
	}
	u, err := m.Parts.Access.User(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	return &api.Put[access.User]{Tagged: taggedUser(u), Created: made}, nil
}

// GetUser responds to GET /v1/users/{user}.
func (m *Handlers) GetUser(ctx context.Context, r *UserPath) (*api.Tagged[access.User], error) {
	u, err := m.Parts.Access.User(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	return new(taggedUser(u)), nil
}

func taggedUser(u *access.User) api.Tagged[access.User] {
	return api.Tagged[access.User]{ETag: u.Version.String(), Body: u}
}

// DeleteUserRequest is the request DELETE /v1/users/{user}.
type DeleteUserRequest struct {
	UserPath
	api.IfMatchHeader
}

// DeleteUser responds to DELETE /v1/users/{user}.
func (m *Handlers) DeleteUser(ctx context.Context, r *DeleteUserRequest) (*api.NoContent, error) {
	when, err := r.Conditions()
	if err != nil {
		return nil, err
	}
	err = m.Parts.Access.DeleteUser(ctx, r.Name, when...)
	return &api.NoContent{}, r.Rejected(err, "user", r.Name)
}
