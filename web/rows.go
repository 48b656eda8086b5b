package web

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// rowList is a setting that is a list of rows, which buttons add and remove. at is what the names of a row's fields
// begin with.
type rowList struct {
	name, row, hint string
	fields          func(at string) []formField
	read            func(f *form, at string) any
	write           func(f *form, at string, row json.RawMessage)
}

func (l *rowList) at(row int) string { return fmt.Sprintf("%s[%d]", l.name, row) }

func (l *rowList) fill(f *form, value json.RawMessage) {
	var rows []json.RawMessage
	_ = json.Unmarshal(value, &rows) // it is stored as a list
	for i, row := range rows {
		l.write(f, l.at(i)+".", row)
	}
}

func (l *rowList) values(f *form) any {
	rows := []any{}
	for i := range f.rows(l.name) {
		rows = append(rows, l.read(f, l.at(i)+"."))
	}
	return rows
}

// show is the list with the texts of its setting.
func (l *rowList) show(e *editor, setting *formField) *formList {
	list := &formList{
		Name: l.name, Title: setting.Label, Hint: setting.Hint + " " + l.hint, Add: "Add " + strings.ToLower(l.row),
		Mistakes: e.mistakes[l.name],
	}
	for i := range e.rows(l.name) {
		row := formRow{Title: l.row + " " + strconv.Itoa(i+1), Fields: e.fields(l.fields(l.at(i) + ".")...), Remove: l.at(i)}
		row.Fields[0].Focus = e.focus == l.name && i == e.rows(l.name)-1
		list.Rows = append(list.Rows, row)
	}
	return list
}

// dropEmptyRows removes the rows with nothing but a choice: the API's row numbers are then those of the page.
func (l *rowList) dropEmptyRows(f *form) {
	for i := f.rows(l.name) - 1; i >= 0; i-- {
		empty := true
		for _, field := range l.fields(l.at(i) + ".") {
			empty = empty && (field.Kind == kindSelect || !f.has(field.Name))
		}
		if empty {
			f.removeRow(l.name, i)
		}
	}
}

// changeRows does what the buttons that add and remove rows say.
func (e *editor) changeRows() {
	for _, l := range e.lists {
		if e.get("add") == l.name {
			e.focus = l.name
			e.set(l.fields(l.at(e.rows(l.name)) + ".")[0].Name, "")
		}
		if row, _, ok := rowOf(l.name, e.get("remove")+"."); ok {
			e.removeRow(l.name, row)
		}
	}
}
