package lab

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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

// ShelfCondition is what an actor applies to the status of a Deployment named shelf who reports one
// condition, of the given type and true.
func ShelfCondition(namespace, condition string) *applyapps.DeploymentApplyConfiguration {
	return applyapps.Deployment("shelf", namespace).WithStatus(applyapps.DeploymentStatus().WithConditions(
		applyapps.DeploymentCondition().WithType(appsv1.DeploymentConditionType(condition)).WithStatus(corev1.ConditionTrue)))
}
