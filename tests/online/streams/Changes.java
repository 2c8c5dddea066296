// Debezium within a program: the changes of a table of PostgreSQL, as messages of Kafka.
//
//     java -cp 'jars/*' Changes.java SETTINGS SERVERS TOPIC

import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Changes {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.load(new FileReader(arguments[0]));
        Properties servers = new Properties();
        servers.put("bootstrap.servers", arguments[1]);
        var producer = new KafkaProducer<>(servers, new StringSerializer(), new StringSerializer());
        var engine = DebeziumEngine.create(Json.class).using(settings)
            .using((success, message, error) -> {
                System.err.println("ended: " + message + " " + error);
            })
            .notifying((records, committer) -> {
                for (var record : records) {
                    producer.send(new ProducerRecord<>(arguments[2], record.value()));
                }
                producer.flush();
                for (var record : records) {
                    committer.markProcessed(record);
                }
                committer.markBatchFinished();
            }).build();
        engine.run();
    }
}
