package query

import "context"

// View is a documented view of the SQL contract.
type View struct {
	Name    string       `json:"name"`
	Comment string       `json:"comment"`
	Columns []ViewColumn `json:"columns"`
}

// ViewColumn is a column of a View.
type ViewColumn struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Comment string `json:"comment"`
}

// ReadViews reads the views of schema postrider by name, with their columns and comments. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadViews(ctx context.Context) (views []View, err error) {
	err = read(ctx, r.db, "views", func(r *reading) { views = rows[View](r, "views") })
	return views, err
}
