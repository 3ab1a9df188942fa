package lab

import (
	"regexp"
	"strconv"
)

var managedTime = regexp.MustCompile(`"time":"\d{4}-`)

// Age makes a custom resource look as if its fields had been written in the year 2020, by changing the times
// in metadata.managedFields in etcd, behind the apiserver's back. It returns the object as it then is, once
// the apiserver's cache has it.
func (l *Lab) Age(o *Object) *Object {
	stored := l.KV(o)
	put, err := l.Etcd().Put(l.ctx, l.Key(o), managedTime.ReplaceAllString(string(stored.Value), `"time":"2020-`))
	l.Step(err, "ageing "+o.GetName()+" in etcd")
	aged, err := l.quiet().Of(kindOf(o)).TryGetAt(o.GetName(), strconv.FormatInt(put.Header.Revision, 10))
	l.Step(err, "waiting until the apiserver has seen the aged "+o.GetName())
	return aged
}
