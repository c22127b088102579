package sqlite

import (
	"context"
	"fmt"
)

// Setting implements [jobs.Store].
func (d *DB) Setting(ctx context.Context, name string) (value string, err error) {
	err = d.read(ctx, func(q queries) error {
		value, err = setting(q, name)
		return err
	})
	return value, d.explain(fmt.Sprintf("reading setting %q", name), err)
}

// SetSetting implements [jobs.Store].
func (d *DB) SetSetting(ctx context.Context, name, value string, onlyNew bool) (inForce string, err error) {
	text := "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
	if onlyNew {
		text = "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
	}
	err = d.write(ctx, fmt.Sprintf("storing setting %q", name), func(t *transaction) (own, err error) {
		if _, err := t.exec(text, name, value); err != nil {
			return nil, err
		}
		inForce, err = setting(t, name)
		return nil, err
	})
	return inForce, err
}

func setting(q queries, name string) (value string, err error) {
	_, err = first(q, []any{&value}, "SELECT value FROM settings WHERE name = ?", name)
	return value, err
}
