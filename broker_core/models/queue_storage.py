"""What a storage account has beside its queues."""

from django.db import models

from .entities import Namespace


class StorageAccount(models.Model):
    """The keys of a storage account, and the properties of its queue service."""

    namespace = models.OneToOneField(Namespace, primary_key=True, on_delete=models.CASCADE, related_name="storage_account")
    primary_key = models.CharField(max_length=128)
    secondary_key = models.CharField(max_length=128)
    properties = models.JSONField(default=dict, blank=True)  # see queue_storage.rules.service_properties

    class Meta:
        db_table = "vitrine_storage_account"
        verbose_name = "storage account"

    def __str__(self):
        return str(self.namespace)
