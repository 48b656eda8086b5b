package site

import (
	"html/template"
	"reflect"
	"strings"

	"postrider/web/display"
)

// Grid is a table with its rendered cells. Columns has no column whose value is the same in all rows.
type Grid struct {
	display.Table
	// Folded are the columns with the same value in all rows.
	Folded []Folded
	// Vacant are the labels of the columns without a value in any row.
	Vacant []string
	Lines  []Line
}

// Folded is a column with its value in all rows.
type Folded struct {
	Label string
	Value template.HTML
}

// Line is a row of a table.
type Line struct {
	Pick  template.HTML // the check-box; "" without one
	Cells []template.HTML
}

// Grid renders the cells of a table and folds the columns that are equal in all rows. It never folds the first column,
// numbers and times, which change while the page is open, and a table with one row.
func (s *Site) Grid(t display.Table) (g Grid, err error) {
	rows := reflect.ValueOf(t.Rows)
	if g.Table = t; !rows.IsValid() {
		return g, nil
	}
	g.Lines, g.Columns = make([]Line, rows.Len()), nil
	for i := range g.Lines {
		if len(t.Checked) > 0 {
			if g.Lines[i].Pick, err = s.Part(t.Name+"/pick", rows.Index(i).Interface()); err != nil {
				return g, err
			}
		}
	}
	for n, column := range t.Columns {
		cells := make([]template.HTML, rows.Len())
		equal := n > 0 && len(cells) > 1 && !strings.HasPrefix(column.Class, "number")
		for i := range cells {
			if cells[i], err = s.Cell(t.Name, column, rows.Index(i).Interface()); err != nil {
				return g, err
			}
			cells[i] = template.HTML(strings.TrimSpace(string(cells[i]))) //nolint:gosec // html/template has rendered it
			equal = equal && cells[i] == cells[0] && !strings.Contains(string(cells[i]), "<time")
		}
		switch {
		case !equal:
			g.Columns = append(g.Columns, column)
			for i := range cells {
				g.Lines[i].Cells = append(g.Lines[i].Cells, cells[i])
			}
		case cells[0] == "":
			g.Vacant = append(g.Vacant, column.Label)
		default:
			g.Folded = append(g.Folded, Folded{column.Label, cells[0]})
		}
	}
	return g, nil
}
