package lab

import "regexp"

// anyTime is a time in the managedFields of an object that is stored as JSON.
var anyTime = regexp.MustCompile(`"time":"[^"]*"`)

// BackdateManagedFields sets the times in an object's managedFields to another one, in etcd itself and
// behind kube-apiserver's back, and returns the object as the API then serves it. The object is a custom
// resource: those are stored as JSON, of which nothing else changes.
func (l *Lab) BackdateManagedFields(o *Object, time string) *Object {
	return l.rewrite(o, func(stored []byte) ([]byte, error) {
		return anyTime.ReplaceAll(stored, []byte(`"time":"`+time+`"`)), nil
	})
}
