package lab

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Edit is one way to change an object named shelf. field is what the lesson changes as the desired state of
// the kind: "size", "minReadySeconds".
type Edit func(c *Client, field string) error

// Desired is the edit that sets the field to a value, with a merge patch.
func Desired(value string) Edit {
	return func(c *Client, field string) error {
		_, err := c.TrySet("shelf", field+"="+value)
		return err
	}
}

// Merge is the edit that sends a merge patch, whatever the kind.
func Merge(body string) Edit {
	return func(c *Client, _ string) error {
		_, err := c.TryPatch("shelf", types.MergePatchType, body)
		return err
	}
}

// Applied is the edit that applies the field with a value, as a field manager that takes over what others
// own.
func Applied(manager, value string) Edit {
	return func(c *Client, field string) error {
		_, err := c.TryApply("shelf", manager, true, field+"="+value)
		return err
	}
}

// Deleted is the edit that deletes the object.
func Deleted(c *Client, _ string) error { return c.TryDelete("shelf") }

// Through is the edit sent to a subresource.
func (e Edit) Through(subresource string) Edit {
	return func(c *Client, field string) error { return e(c.Sub(subresource), field) }
}

// Moved is what one edit moved of what an object says about itself, and what it cost the store.
type Moved struct {
	// ResourceVersion and UID say whether the object had another one after the edit.
	ResourceVersion, UID bool
	// Generation is by how much metadata.generation grew.
	Generation int64
	// Writes is how often the object's key was written in etcd.
	Writes int64
	// Err is the answer of the API, if it refused.
	Err error
}

// Moved does an edit and looks at the object and at its key before and after it. The looking is not on the
// tape.
func (l *Lab) Moved(o *Object, edit func() error) Moved {
	look := func() (*Object, KeyValue) {
		defer l.Wire.Tape().Pause()()
		now, err := l.quiet().Of(kindOf(o)).TryGet(o.GetName())
		l.Step(err, "looking at "+o.GetName())
		return now, l.KV(o)
	}
	before, stored := look()
	err := edit()
	after, nowStored := look()
	return Moved{
		ResourceVersion: after.GetResourceVersion() != before.GetResourceVersion(),
		UID:             after.GetUID() != before.GetUID(),
		Generation:      after.GetGeneration() - before.GetGeneration(),
		Writes:          nowStored.Version - stored.Version,
		Err:             err,
	}
}

// String is what moved, in the few letters of a table's cell: "rv" for the resourceVersion, "gen" for the
// generation, "-" for nothing although the request was accepted, and the status of a refusal. One storage
// write goes with "rv" and none with everything else; where that is not so, the cell says it.
func (m Moved) String() string {
	if m.Err != nil {
		if s, ok := statusOf(m.Err); ok {
			return fmt.Sprint(s.Code)
		}
		return m.Err.Error()
	}
	cell := ""
	add := func(moved bool, word string) {
		if moved {
			cell += " " + word
		}
	}
	add(m.UID, "uid")
	add(m.ResourceVersion, "rv")
	add(m.Generation == 1, "gen")
	add(m.Generation != 0 && m.Generation != 1, fmt.Sprintf("gen%+d", m.Generation))
	add((m.Writes == 1) != m.ResourceVersion, fmt.Sprintf("(%d writes)", m.Writes))
	if cell == "" {
		return "-"
	}
	return cell[1:]
}
