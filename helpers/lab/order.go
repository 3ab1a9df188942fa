package lab

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Order compares two resourceVersions of one resource: -1 when a is older than b, 0 when they are the same,
// 1 when a is newer. It is apimachinery's CompareResourceVersion, unless a world has put another comparison
// in its place; the error is that of a token which is no number of that form.
func (l *Lab) Order(a, b string) (int, error) {
	if l.order != nil {
		return l.order(a, b)
	}
	return resourceversion.CompareResourceVersion(a, b)
}

// OrderBy puts another comparison in the place of CompareResourceVersion.
func (l *Lab) OrderBy(order func(a, b string) (int, error)) { l.order = order }
