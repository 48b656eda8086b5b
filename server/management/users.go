package management

import (
	"context"
	"errors"
	"net/http"

	"postrider/access"
	"postrider/postgres"
	"postrider/server/api"
)

// ListUsers answers GET /v1/users.
func (m *Handlers) ListUsers(ctx context.Context, r api.ListUsersRequestObject) (api.ListUsersResponseObject, error) {
	page, err := api.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := m.Parts.Access.Users(ctx, page.After, page.Limit+1)
	if err != nil {
		return nil, err
	}
	shown, next := api.Cut(page, list, "/v1/users", func(u access.User) string { return u.Name })
	answer := api.ListUsers200JSONResponse{Value: []api.User{}, NextLink: next}
	for i := range shown {
		answer.Value = append(answer.Value, DescribeUser(&shown[i]))
	}
	return answer, nil
}

// PutUser answers PUT /v1/users/{user}.
func (m *Handlers) PutUser(ctx context.Context, r api.PutUserRequestObject) (api.PutUserResponseObject, error) {
	if r.Body.Role == "" {
		return nil, api.Invalid("role", "is required: viewer, operator or admin")
	}
	spec := access.UserSpec{Role: access.Role(r.Body.Role), Password: r.Body.Password, Disabled: r.Body.Disabled}
	when, err := api.Conditions(r.Params.IfMatch, r.Params.IfNoneMatch)
	if err != nil {
		return nil, err
	}
	made, err := m.Parts.Access.PutUser(ctx, r.User, spec, when...)
	if errors.Is(err, postgres.ErrPrecondition) {
		return nil, api.RefusePrecondition("user", r.User, r.Params.IfMatch)
	}
	if err != nil {
		return nil, err
	}
	u, err := m.Parts.Access.User(ctx, r.User)
	if err != nil {
		return nil, err
	}
	if made {
		return api.PutUser201JSONResponse{
			Body: DescribeUser(u), Headers: api.PutUser201ResponseHeaders{ETag: api.ETagOf(u.Version())},
		}, nil
	}
	return api.PutUser200JSONResponse{
		Body: DescribeUser(u), Headers: api.PutUser200ResponseHeaders{ETag: api.ETagOf(u.Version())},
	}, nil
}

// GetUser answers GET /v1/users/{user}.
func (m *Handlers) GetUser(ctx context.Context, r api.GetUserRequestObject) (api.GetUserResponseObject, error) {
	if !api.Storable(r.User) {
		return nil, userNotFound(r.User)
	}
	u, err := m.Parts.Access.User(ctx, r.User)
	if err != nil {
		return nil, err
	}
	return api.GetUser200JSONResponse{
		Body: DescribeUser(u), Headers: api.GetUser200ResponseHeaders{ETag: api.ETagOf(u.Version())},
	}, nil
}

// DeleteUser answers DELETE /v1/users/{user}.
func (m *Handlers) DeleteUser(
	ctx context.Context, r api.DeleteUserRequestObject,
) (api.DeleteUserResponseObject, error) {
	if !api.Storable(r.User) {
		return nil, userNotFound(r.User)
	}
	when, err := api.Conditions(r.Params.IfMatch, nil)
	if err != nil {
		return nil, err
	}
	err = m.Parts.Access.DeleteUser(ctx, r.User, when...)
	if errors.Is(err, postgres.ErrPrecondition) {
		return nil, api.RefusePrecondition("user", r.User, r.Params.IfMatch)
	}
	if err != nil {
		return nil, err
	}
	return api.DeleteUser204Response{}, nil
}

// DescribeUser is the user as the REST API and `user list -o json` write them.
func DescribeUser(u *access.User) api.User {
	return api.User{
		Name: u.Name, Role: api.UserRole(u.Role), Disabled: u.Disabled, Etag: api.ETagOf(u.Version()),
		CreatedAt: u.CreatedAt.UTC(), CreatedBy: u.CreatedBy, ChangedAt: u.ChangedAt.UTC(),
		LastSignInAt: utcOrNull(u.LastSignInAt), Sessions: u.Sessions,
	}
}

func userNotFound(name string) error {
	return api.Refuse(http.StatusNotFound, api.CodeNotFound, "there is no user %q", api.Shorten(name))
}
