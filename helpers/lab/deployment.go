package lab

import (
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
)

// ShelfDeployment is what a controller applies for a Deployment named shelf, without replicas.
func ShelfDeployment(namespace string) *applyapps.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "shelf"}
	return applyapps.Deployment("shelf", namespace).WithSpec(applyapps.DeploymentSpec().
		WithSelector(applymeta.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(applycore.PodTemplateSpec().WithLabels(labels).WithSpec(applycore.PodSpec().
			WithContainers(applycore.Container().WithName("c").WithImage("registry.example/shelf:1")))))
}
