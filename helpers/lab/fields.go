package lab

import "strings"

// Peek reads the newest version of an object without leaving a trace on the tape: for tables that show what
// is stored after each step.
func (c *Client) Peek(name string) *Object {
	defer c.lab.Wire.Tape().Pause()()
	o, err := c.lab.quiet().Of(c.kind).TryGet(name)
	c.lab.Step(err, "looking at "+c.kind.Resource+"/"+name)
	return o
}

// Fields is what an object has in the named fields, as a table shows it: "color=green, no size".
func Fields(o *Object, names ...string) string {
	out := make([]string, len(names))
	for i, name := range names {
		short := name[strings.LastIndexByte(name, '.')+1:]
		if _, ok := lookup(o, name); ok {
			out[i] = short + "=" + Field(o, name)
		} else {
			out[i] = "no " + short
		}
	}
	return strings.Join(out, ", ")
}
